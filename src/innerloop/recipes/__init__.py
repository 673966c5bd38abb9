"""Typed recipes: the only room that sees configuration. Builds, runs, sweeps."""
