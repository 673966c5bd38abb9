"""Closed forms and estimators on arrays only: what can be said before training.

Import from the modules: ``from innerloop.theory.landscape.batch import compare``.
"""
