"""Tables of short races: what each chose, and what every method reached after long training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from innerloop_studies.recorded.accuracies import data_of
from innerloop_studies.recorded.text import table


def races(name: str) -> str:
    """Problem by problem: the choice, what it loses by, and all methods after long training."""
    problems = data_of(name)["problems"]
    methods = list(dict.fromkeys(method for one in problems for method in one["long"]))
    errors = name == "advice-numbers"
    head = ("problem", "chosen", "its lead was called", "loses by", *methods)
    return table(head, [line(one, methods, errors) for one in problems])


def line(one: dict[str, Any], methods: Sequence[str], errors: bool) -> Sequence[str]:
    """A problem as the cells of a table; the best method stands out.

    >>> one = {"problem": "x", "chosen": "a", "best": "b", "decided": True, "regret": 0.012}
    >>> line({**one, "long": {"a": 0.488, "b": 0.5}}, ["a", "b"], False)
    ['x', 'a', 'more than chance', '1.2 points', '48.8', '**50.0**']
    >>> line({**one, "long": {"a": 0.506, "b": 0.5}}, ["a", "b", "c"], True)[3:]
    ['1 %', '0.506', '**0.5**', '']
    """
    lost = f"{100 * one['regret']:.0f} %" if errors else f"{100 * one['regret']:.1f} points"
    cells = [score_of(one["long"][method], errors) if method in one["long"] else "" for method in methods]
    stands_out = [
        f"**{cell}**" if method == one["best"] else cell for method, cell in zip(methods, cells, strict=True)
    ]
    called = "more than chance" if one["decided"] else "perhaps chance"
    return [one["problem"], one["chosen"], called, lost, *stands_out]


def score_of(value: float | None, errors: bool) -> str:
    """A score; JSON has nothing for an infinite error.

    >>> score_of(None, True), score_of(4.4e10, True), score_of(118.2, True), score_of(0.605, False)
    ('diverged', '4.4e+10', '118', '60.5')
    """
    if value is None or math.isinf(value):
        return "diverged"
    return f"{value:.3g}" if errors else f"{100 * value:.1f}"
