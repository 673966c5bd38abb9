"""What a rate loses against the best of a grid of fixed rates: the table behind studies of ``auto``."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy

from innerloop.report.plots.panels import line, mark, panel
from innerloop.theory.rate.bracket import step_divisor
from innerloop_studies.papers.further.rate_runs import Case, Reached

GRID = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
MEDIAN, WORST = 0.01, 0.03
"""The aim: regrets of this much in the median and at worst."""

Results = Mapping[tuple[Case, Any, int], Reached]
"""What was reached, by case, rate (a number or ``auto``) and seed."""


class Entry(NamedTuple):
    """A problem: accuracies at the rates of the grid and at ``auto``, means over seeds."""

    case: Case
    scores: list[float]
    auto: float
    rate: float

    @property
    def best(self) -> float:
        """The highest of the grid, chosen on the same test tasks, which favours it."""
        return max(self.scores)

    @property
    def at(self) -> float:
        """The rate of the grid that is best."""
        return GRID[self.scores.index(self.best)]

    @property
    def regret(self) -> float:
        """What ``auto`` loses against the best rate of the grid."""
        return max(0.0, self.best - self.auto)

    @property
    def factor(self) -> float:
        """The factor between ``auto``'s rate and the nearest of the grid within one point of the best.

        It is one where ``auto`` itself is that good.

        >>> scores = [0.1] * 4 + [0.495, 0.5, 0.3, 0.2]
        >>> round(Entry(Case("glyphs", 5, "none", 1), scores, 0.48, 0.1).factor, 2)
        3.0
        """
        if self.regret <= MEDIAN:
            return 1.0
        good = [r for r, score in zip(GRID, self.scores, strict=True) if score >= self.best - MEDIAN]
        return min(max(r / self.rate, self.rate / r) for r in good)

    @property
    def divided(self) -> float:
        """The regret, had the rate been divided by the steps and not by their root."""
        return self._elsewhere(self.rate / step_divisor(self.case.steps))

    @property
    def undivided(self) -> float:
        """The regret, had the rate not been divided."""
        return self._elsewhere(self.rate * step_divisor(self.case.steps))

    def _elsewhere(self, other: float) -> float:
        """With one step nothing is divided."""
        return self.between(other) if self.case.steps > 1 else self.regret

    def between(self, rate: float) -> float:
        """The regret at a rate, read off between those of the grid.

        >>> scores = [0.1, 0.1, 0.2, 0.3, 0.5, 0.4, 0.3, 0.2]
        >>> entry = Entry(Case("glyphs", 5, "none", 1), scores, 0.5, 0.3)
        >>> round(entry.between(0.3), 3), round(entry.between(math.sqrt(0.3)), 3)
        (0.0, 0.05)
        """
        known = numpy.interp(math.log(rate), [math.log(r) for r in GRID], self.scores)
        return max(0.0, self.best - float(known))

    def as_dict(self) -> dict[str, Any]:
        """For files."""
        figures = ("scores", "best", "at", "auto", "rate", "regret", "factor", "divided", "undivided")
        return {"case": str(self.case), **{name: getattr(self, name) for name in figures}}


def summary(case: Case, results: Results, seeds: int) -> Entry:
    """Means over seeds."""

    def mean(rate: Any) -> float:
        """The mean accuracy at a rate."""
        return statistics.fmean(results[(case, rate, seed)].accuracy for seed in range(seeds))

    rate = statistics.fmean(results[(case, "auto", seed)].rate for seed in range(seeds))
    return Entry(case, [mean(rate) for rate in GRID], mean("auto"), rate)


def panel_of(entry: Entry) -> Any:
    """Accuracy against the rate."""
    name = "test accuracy: " + str(entry.case).replace(", ", "\n", 1)
    return panel(
        "inner rate",
        name,
        [line("fixed", GRID, entry.scores)],
        [mark("auto", entry.rate, entry.auto)],
        log_x=True,
    )
