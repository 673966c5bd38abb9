"""The lines of MetaNTK-NAS' tables: means and standard deviations over independent runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

from innerloop_studies.papers.metantk.outcomes import CaseRun


class Spread(NamedTuple):
    """A mean over independent runs with their standard deviation, which is what the paper's ± is."""

    mean: float
    deviation: float
    runs: int

    def __str__(self) -> str:
        spread = "" if math.isnan(self.deviation) else f" ± {self.deviation:.2f}"
        return f"{self.mean:.2f}{spread} %"


def spread(values: Iterable[float]) -> Spread:
    """Mean and standard deviation; the latter is not a number for a single run.

    >>> str(spread([60.0, 61.0, 62.0])), str(spread([60.0]))
    ('61.00 ± 1.00 %', '60.00 %')
    """
    numbers = list(values)
    return Spread(fmean(numbers), stdev(numbers) if len(numbers) > 1 else math.nan, len(numbers))


class Line(NamedTuple):
    """A line of a table, of one method."""

    cells: int
    parameters: float
    search_minutes: float | None
    training_minutes: float
    runs: int
    accuracy: dict[str, Spread]
    genotypes: list[Any]
    reliability: list[Mapping[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        accuracy = {shots: value._asdict() for shots, value in self.accuracy.items()}
        return {**self._asdict(), "accuracy": accuracy}


def shots_of(run: CaseRun) -> list[str]:
    """The numbers of shots that a run was judged with."""
    return list(run.training.scores)


def accuracy(run: CaseRun, shots: str) -> float:
    """Of one run, in percent."""
    return 100 * fmean(run.training.scores[shots])


def accuracies(runs: Sequence[CaseRun], shots: str) -> Spread:
    """Over independent runs, in percent."""
    return spread(accuracy(run, shots) for run in runs)


def line_of(runs: Sequence[CaseRun], cells: int) -> Line:
    """A line of the table: parameters, search cost, and accuracies with standard deviations."""
    searches = [run.search for run in runs if run.search is not None]
    return Line(
        cells,
        parameters=fmean(run.training.parameters for run in runs),
        search_minutes=fmean(one.seconds for one in searches) / 60 if searches else None,
        training_minutes=fmean(run.training.seconds for run in runs) / 60,
        runs=len(runs),
        accuracy={shots: accuracies(runs, shots) for shots in shots_of(runs[0])},
        genotypes=[run.genotype for run in runs],
        reliability=[one.reliability for one in searches],
    )


def plain_lines(lines: Mapping[str, Line]) -> dict[str, dict[str, Any]]:
    """Lines by method, as plain data."""
    return {method: line.as_dict() for method, line in lines.items()}
