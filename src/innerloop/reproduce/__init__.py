"""``innerloop reproduce``: the papers' tables and figures, one file per name.

A module ``innerloop.reproduce.landscape_fig1`` (dashes become underscores) has
``run(scale, say) -> Reproduction``. It may keep finished parts under ``parts`` (a folder; see
:func:`innerloop.reproduce.parts.remembered`) if it takes long.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from innerloop.core.errors import UserError, did_you_mean

SCALES = ("smoke", "cpu", "paper")
REPRODUCTIONS: dict[str, str] = {}
"""Names and what they redo. Nothing here imports torch."""


def find(name: str) -> ModuleType:
    """The module of a reproduction.

    Raises:
        UserError: there is none of this name.
    """
    if name not in REPRODUCTIONS:
        hint = did_you_mean(name, REPRODUCTIONS)
        raise UserError(f"there is no reproduction '{name}'{hint}: `innerloop reproduce ls` lists them.")
    return import_module(f"innerloop.reproduce.{name.replace('-', '_')}")
