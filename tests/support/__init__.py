"""What several rooms of tests need: places, commands, pictures and archives."""
