"""Kernels of given networks of finite width."""
