"""The version, alone in a file so that neither the build nor ``--version`` imports anything."""

__version__ = "0.1.0"
