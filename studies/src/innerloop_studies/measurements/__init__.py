"""Measurements that are neither of a paper nor a benchmark: scripts that print JSON."""
