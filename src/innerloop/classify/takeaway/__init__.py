"""What one takes away: a graph that runs without innerloop, and a card that says what it is."""
