"""Layers as operations on tensors: slow and right, fast and as right, and the one place that chooses."""
