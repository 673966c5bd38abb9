"""How publishers lay out their archives: one file each, found by the name in the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from innerloop.data.archives import Archive
from innerloop.data.catalogue import ClassList
from innerloop.data.layouts.layout import Layout


def read_layout(name: str, archives: Sequence[Archive], classes: ClassList) -> Layout:
    """What the archives hold: the function ``name`` of the module ``name`` says it."""
    function = name.replace("-", "_")
    layout: Layout = getattr(import_module(f"{__name__}.{function}"), function)(archives, classes)
    return layout
