"""What a few-shot problem needs, with evidence, before it is trained on in earnest: :func:`advise`."""
