"""From data or a recipe to an architecture: candidates are scored, some are trained briefly, one is chosen.

What a search looks at before training is in :mod:`innerloop.choose.architectures`; here candidates meet the
training loop.
"""
