"""Architectures for few-shot problems: what can be said of a network before it is trained, and searches."""
