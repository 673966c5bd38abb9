"""Kernels that meta-learners train with, and what they predict."""
