"""What a rate loses against the best of a grid of fixed rates: the table behind studies of ``auto``."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

import numpy

from innerloop.papers.further.rate_runs import Case
from innerloop.plots.panels import line, mark, panel
from innerloop.theory.rate.bracket import step_divisor

GRID = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
MEDIAN, WORST = 0.01, 0.03
"""The aim: regrets of this much in the median and at worst."""

Results = Mapping[tuple[Case, Any, int], dict[str, Any]]
"""What was reached, by case, rate (a number or ``auto``) and seed."""


def needed_factor(entry: Mapping[str, Any]) -> float:
    """The factor between ``auto``'s rate and the nearest of the grid within one point of the best.

    It is one where ``auto`` itself is that good.

    >>> entry = {"regret": 0.02, "rate": 0.1, "best": 0.5, "scores": [0.1] * 4 + [0.495, 0.5, 0.3, 0.2]}
    >>> round(needed_factor(entry), 2)
    3.0
    """
    if entry["regret"] <= MEDIAN:
        return 1.0
    good = [r for r, score in zip(GRID, entry["scores"], strict=True) if score >= entry["best"] - MEDIAN]
    return min(max(r / entry["rate"], entry["rate"] / r) for r in good)


def between(entry: Mapping[str, Any], rate: float) -> float:
    """The regret at a rate, read off between those of the grid.

    >>> entry = {"scores": [0.1, 0.1, 0.2, 0.3, 0.5, 0.4, 0.3, 0.2], "best": 0.5}
    >>> round(between(entry, 0.3), 3), round(between(entry, math.sqrt(0.3)), 3)
    (0.0, 0.05)
    """
    known = numpy.interp(math.log(rate), [math.log(r) for r in GRID], entry["scores"])
    return max(0.0, entry["best"] - float(known))


def summary(case: Case, results: Results, seeds: int) -> dict[str, Any]:
    """Means over seeds; the best rate of the grid is chosen on the same test tasks, which favours it.

    Args:
        case: the problem.
        results: at all rates of the grid and at ``auto``.
        seeds: how many there are.
    """

    def mean(rate: Any) -> float:
        """The mean accuracy at a rate."""
        return statistics.fmean(results[(case, rate, seed)]["accuracy"] for seed in range(seeds))

    scores = [mean(rate) for rate in GRID]
    best = max(range(len(GRID)), key=scores.__getitem__)
    rate = statistics.fmean(results[(case, "auto", seed)]["rate"] for seed in range(seeds))
    entry: dict[str, Any] = {
        "case": case,
        "scores": scores,
        "best": scores[best],
        "at": GRID[best],
        "auto": mean("auto"),
        "rate": rate,
    }

    def elsewhere(other: float) -> float:
        """Regret at another rate; with one step nothing is divided."""
        return between(entry, other) if case.steps > 1 else max(0.0, scores[best] - entry["auto"])

    root = step_divisor(case.steps)  # what auto divided by
    entry["regret"] = max(0.0, scores[best] - entry["auto"])
    return {
        **entry,
        "factor": needed_factor(entry),
        "divided": elsewhere(rate / root),
        "undivided": elsewhere(rate * root),
    }


def panel_of(entry: Mapping[str, Any]) -> Any:
    """Accuracy against the rate."""
    name = "test accuracy: " + str(entry["case"]).replace(", ", "\n", 1)
    return panel(
        "inner rate",
        name,
        [line("fixed", GRID, entry["scores"])],
        [mark("auto", entry["rate"], entry["auto"])],
        log_x=True,
    )


def plain(entry: Mapping[str, Any]) -> dict[str, Any]:
    """For files."""
    return {**entry, "case": str(entry["case"])}
