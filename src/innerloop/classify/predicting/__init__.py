"""New classes from a few examples: the one way to predict, its files, and what it tells."""
