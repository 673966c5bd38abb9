"""When MAML is worth it (Landscape): closed forms, many environments at once, estimates from samples."""
