"""Slow, obvious twins of the fast paths, written without looking at them: what the tests compare with."""
