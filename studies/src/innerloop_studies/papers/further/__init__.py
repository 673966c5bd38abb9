"""Comparisons of our own, and of papers other than the four."""
