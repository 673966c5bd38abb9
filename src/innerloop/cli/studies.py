"""What ``innerloop-studies`` adds to the command: verbs, found by entry point."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from innerloop.core.errors import UserError

GROUP = "innerloop.verbs"


def reproduce() -> None:
    """Redo one table or figure of the papers, several of them, or all."""


def bench() -> None:
    """Measure innerloop side by side with its peers, here and now."""


STUDIES = {"reproduce": reproduce, "bench": bench}
"""What ``--help`` says of each; the verb itself takes its place when it is called."""


@functools.cache
def study_verb(name: str) -> Callable[..., None]:
    """The verb itself; refused where the studies are not installed."""
    for point in entry_points(group=GROUP, name=name):
        verb: Callable[..., None] = point.load()
        return verb
    raise UserError(
        f"`innerloop {name}` needs the studies, which are not installed: `pip install innerloop-studies`."
    )


def benchmarks() -> dict[str, Any]:
    """Benchmarks by name; none where the studies are not installed."""
    for point in entry_points(group="innerloop.lists", name="benchmarks"):
        return dict(point.load())
    return {}
