"""The verbs ``reproduce`` and ``bench``."""
