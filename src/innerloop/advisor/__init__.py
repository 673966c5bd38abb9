"""``innerloop advise``: what a few-shot problem needs, with evidence, before it is trained on in earnest.

Estimates come from :mod:`innerloop.advice`; where theory is silent, methods race on the problem's own tasks.
"""
