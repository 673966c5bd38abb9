"""The table of a sweep: intervals over seeds and episodes, and paired differences to the best."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innerloop.core.errors import UserError
from innerloop.core.statistics import mean_interval, paired_difference
from innerloop.evaluation.episodes import Episodes, other_episodes
from innerloop.experiment.recipe.protocols import brief

SEED = "run.seed"
Scores = NDArray[np.float64]

_LOST = {"diverged": "not finite", "pruned": "stopped early"}
"""Why a run has no score, by what became of it."""


class SweepRun(NamedTuple):
    """A run of a sweep."""

    settings: dict[str, Any]
    evaluation: dict[str, Any]
    drawn: Episodes | None
    lost: str = ""
    validation: float | None = None


class SweepRow(NamedTuple):
    """All seeds of one setting.

    Attributes:
        settings: those that were swept, without the seed.
        score: ``accuracy`` or ``mse``.
        mean: over seeds, or over episodes of one; None where a run was lost.
        ci95: half the width of its 95 % interval.
        over: what the interval is over, or how many runs were lost, in words.
        seeds: how many runs there are.
        judged_by: the protocol in a few words.
        validation: the mean of the best ones; None where a run has none.
        reason: why there is no difference; empty if there is one.
        difference: to the best row, episode by episode.
        difference_ci95: half the width of its 95 % interval.
    """

    settings: dict[str, Any]
    score: str
    mean: float | None
    ci95: float | None
    over: str
    seeds: int
    judged_by: str
    validation: float | None
    reason: str = ""
    difference: float | None = None
    difference_ci95: float | None = None


class SweepResult(NamedTuple):
    """What a sweep came to.

    Attributes:
        folder: where its runs are.
        runs: their directories.
        table: one row per setting apart from the seed, best first.
        notes: warnings.
        report: the page of a sweep whose runs were drawn, and are ordered by validation; None for a grid.
    """

    folder: Path
    runs: list[Path]
    table: list[SweepRow]
    notes: list[str]
    report: Path | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as ``innerloop sweep --json`` prints them."""
        told = {
            "folder": str(self.folder),
            "runs": [str(run) for run in self.runs],
            "table": [row._asdict() for row in self.table],
            "notes": self.notes,
        }
        return told if self.report is None else {**told, "drawn": True, "report": str(self.report)}


def table_of(results: list[SweepRun], by_validation: bool = False) -> list[SweepRow]:
    """One row per setting apart from the seed, best first; intervals over seeds, else episodes."""
    # ``difference`` is episode by episode, averaged over seeds, where both rows saw the same episodes
    groups: dict[str, list[SweepRun]] = {}
    for run in results:
        rest = {key: value for key, value in run.settings.items() if key != SEED}
        groups.setdefault(repr(rest), []).append(run._replace(settings=rest))
    lines = [(_row(group), group) for group in groups.values()]
    higher = results[0].evaluation["score"] == "accuracy"
    lines.sort(key=lambda line: _place(line[0], higher, by_validation))
    best = lines[0][1]
    return [_compared(row, group, best) for row, group in lines]


def _compared(row: SweepRow, group: list[SweepRun], best: list[SweepRun]) -> SweepRow:
    """A row with its difference to the best, or with the reason why there is none."""
    if reason := _incomparable(group, best):
        return row._replace(reason=reason)
    difference = paired_difference(_scores(group), _scores(best))
    return row._replace(difference=difference.mean, difference_ci95=difference.ci95)


def _place(row: SweepRow, higher: bool, by_validation: bool) -> tuple[bool, float]:
    """Where a row stands: those without a mean last, those that did better on their way before the others."""
    value = row.validation if by_validation or row.mean is None else row.mean
    return row.mean is None, math.inf if value is None else -value if higher else value


def _incomparable(group: list[SweepRun], best: list[SweepRun]) -> str:
    """Why two rows cannot be compared task by task; empty if they can."""
    lost = [run for run in group if run.evaluation["mean"] is None]
    if lost:
        return _LOST.get(lost[0].lost, "not finite")
    if group is best and len(group) == 1:
        return ""
    scores = {str(run.evaluation["score"]) for run in (*group, *best)}
    if len(scores) > 1:
        return f"other scores ({' and '.join(sorted(scores))})"
    names = ("this row", "the best row")
    reasons = [other_episodes(run.drawn, other.drawn, names) for run in group for other in best]
    return next((reason for reason in reasons if reason), "")


def _scores(group: list[SweepRun]) -> Scores:
    """The scores of the episodes, averaged over seeds."""
    mean: Scores = np.mean([run.evaluation["scores"] for run in group], axis=0)
    return mean


def _row(group: list[SweepRun]) -> SweepRow:
    settings, first = group[0].settings, group[0].evaluation
    lost = [run for run in group if run.evaluation["mean"] is None]
    several = len(group) > 1
    means = [run.evaluation["mean"] for run in group]
    over_seeds = mean_interval([math.nan if mean is None else mean for mean in means])
    whole = f"{len(group)} seeds" if several else f"{len(first['scores'])} episodes"
    words = " or ".join(dict.fromkeys(run.lost or "diverged" for run in lost))
    known = [run.validation for run in group if run.validation is not None]
    return SweepRow(
        settings,
        score=first["score"],
        mean=None if lost else over_seeds.mean,
        ci95=None if lost else over_seeds.ci95 if several else first["ci95"],
        over=f"{len(lost)} of {len(group)} runs {words}" if lost else whole,
        seeds=len(group),
        judged_by=brief(first),
        validation=sum(known) / len(known) if len(known) == len(group) else None,
    )


def check_scores(rows: list[SweepRow], runs: int, folder: Path) -> None:
    """Refuses a table in which nothing has a score."""
    if all(row.mean is None for row in rows):
        raise UserError(f"none of the {runs} runs in {folder} has a finite score: sweep over smaller rates.")
