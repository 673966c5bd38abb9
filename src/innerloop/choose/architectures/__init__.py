"""Architectures for few-shot problems: spaces, sizes, scores before training, and searches by them."""
