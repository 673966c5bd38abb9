"""Plain data as JSON that gives every float back exactly, those that are not finite too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_FLOAT = "__float__"


def encoded(value: Any) -> Any:
    """Plain data with non-finite floats as ``{"__float__": "inf"}``, because JSON has no such numbers.

    >>> encoded({"loss": math.inf, "step": 3})
    {'loss': {'__float__': 'inf'}, 'step': 3}
    >>> decoded(encoded({"loss": math.inf, "step": 3}))
    {'loss': inf, 'step': 3}
    """
    if isinstance(value, Mapping):
        return {str(key): encoded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encoded(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: repr(float(value))}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(
        f"checkpoint state holds a {type(value).__name__}: put tensors in `tensors`, keep state plain."
    )


def decoded(value: Any) -> Any:
    """What :func:`encoded` was given; tuples come back as lists."""
    if isinstance(value, dict):
        if value.keys() == {_FLOAT}:
            return float(value[_FLOAT])
        return {key: decoded(item) for key, item in value.items()}
    return [decoded(item) for item in value] if isinstance(value, list) else value
