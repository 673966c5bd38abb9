"""Features of pictures by a network that others trained: opened by name, computed once, kept on disk."""
