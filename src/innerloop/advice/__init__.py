"""What can be said before training. Import from the modules, as ``innerloop.advice.rate``."""
