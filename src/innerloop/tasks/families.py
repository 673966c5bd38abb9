"""Families of tasks by name. A literal dict: no registration magic."""

from __future__ import annotations

import inspect
from typing import Any

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.importing import load_object
from innerloop.tasks.linear import linear, mixed_linear
from innerloop.tasks.quadratic import bernacchia_quadratic, bridge_quadratic
from innerloop.tasks.sampler import Family
from innerloop.tasks.sine import adaptlr_sine, sine

FAMILIES: dict[str, Family] = {
    "sine": sine,
    "adaptlr-sine": adaptlr_sine,
    "bridge-quadratic": bridge_quadratic,
    "bernacchia-quadratic": bernacchia_quadratic,
    "mixed-linear": mixed_linear,
    "linear": linear,
}
"""Built-in families, by their names in ``tasks.family``."""


def get_family(name: str) -> Family:
    """A built-in family, or ``Trusted("package.module:function")`` of the user's own.

    >>> get_family("sine").__name__
    'sine'
    """
    if name in FAMILIES:
        return FAMILIES[name]
    if ":" not in name:
        known = ", ".join(FAMILIES)
        raise UserError(
            f"unknown task family '{name}'{did_you_mean(name, FAMILIES)}; there are {known}, "
            "or give your own as package.module:function."
        )
    return _checked(load_object(name), name)


def _checked(family: Any, name: str) -> Family:
    """What a name led to, refused where it cannot be called as a family is."""
    try:
        inspect.signature(family).bind_partial(None, 1, 1)
    except (TypeError, ValueError):
        raise UserError(
            f"'{name}' cannot be called with draws, shots and queries, as a family of tasks is: name a "
            "function that takes them."
        ) from None
    made: Family = family
    return made
