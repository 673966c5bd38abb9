"""Tables of inner rates: what ``auto`` reached beside fixed rates, problem by problem."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from innerloop_studies.recorded.accuracies import data_of
from innerloop_studies.recorded.files import required
from innerloop_studies.recorded.text import table


def rates(name: str, pattern: str = "*") -> str:
    """Accuracies in percent at ``auto`` and at every rate of the grid, and what ``auto`` loses."""
    grid = [f"{rate:g}" for rate in required("reproductions", name)["protocol"]["grid"]]
    chosen = [one for one in data_of(name)["table"] if fnmatchcase(one["case"], pattern)]
    return table(("case", "`auto`", *grid, "regret"), [line(one) for one in chosen])


def line(one: dict[str, Any]) -> Sequence[str]:
    """A problem as the cells of a table.

    >>> line({"case": "x", "auto": 0.411, "rate": 0.263, "scores": [0.2, 0.414], "regret": 0.003})
    ['x', '41.1 at 0.26', '20.0', '41.4', '0.3']
    """
    scores = [f"{100 * score:.1f}" for score in one["scores"]]
    return [
        one["case"],
        f"{100 * one['auto']:.1f} at {one['rate']:.2g}",
        *scores,
        f"{100 * one['regret']:.1f}",
    ]
