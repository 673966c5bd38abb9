"""The papers' tables and figures, and the benchmarks: what the numbers of innerloop come from.

``innerloop reproduce`` and ``innerloop bench`` find this package by its entry points.
"""
