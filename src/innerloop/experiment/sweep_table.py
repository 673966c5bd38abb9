"""The table of a sweep: intervals over seeds and episodes, and paired differences to the best."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innerloop.core.statistics import mean_interval, paired_difference
from innerloop.evaluation.episodes import Episodes, other_episodes
from innerloop.recipes.protocols import brief

SEED = "run.seed"
Scores = NDArray[np.float64]


class SweptRun(NamedTuple):
    """A run of a sweep: its swept settings, its evaluation, and the episodes that it saw, where told."""

    settings: dict[str, Any]
    evaluation: dict[str, Any]
    drawn: Episodes | None


def table_of(results: list[SweptRun]) -> list[dict[str, Any]]:
    """One row per setting apart from the seed, best first.

    The interval is over seeds where there are several (training noise included), else over episodes.
    ``difference`` to the best row is taken episode by episode, averaged over seeds, where all runs of both
    rows were judged on the same episodes; else ``reason`` says why there is none. Rows with a run that
    diverged have no mean and stand last.

    Args:
        results: every run of the sweep.

    >>> from innerloop.evaluation.episodes import TaskKind
    >>> sine = Episodes("sine", (TaskKind(10, 10),), count=2, seed=0)
    >>> easy = {"score": "mse", "mean": 1.0, "ci95": 0.1, "scores": [1.0, 1.0]}
    >>> hard = {"score": "mse", "mean": 2.0, "ci95": 0.1, "scores": [2.0, 2.0]}
    >>> lost = {"score": "mse", "mean": None, "ci95": None, "scores": []}
    >>> runs = [({"inner.lr": 9}, lost), ({"inner.lr": 0.1}, hard), ({"inner.lr": 0.2}, easy)]
    >>> rows = table_of([SweptRun(settings, evaluation, sine) for settings, evaluation in runs])
    >>> [row["difference"] for row in rows]
    [0.0, 1.0, None]
    """
    groups: dict[str, list[SweptRun]] = {}
    for run in results:
        rest = {key: value for key, value in run.settings.items() if key != SEED}
        groups.setdefault(repr(rest), []).append(run._replace(settings=rest))
    lines = [(_row(group), group) for group in groups.values()]
    higher = results[0].evaluation["score"] == "accuracy"
    lines.sort(key=lambda line: _place(line[0]["mean"], higher))
    best = lines[0][1]
    for row, group in lines:
        row["reason"] = _incomparable(group, best)
        difference = None if row["reason"] else paired_difference(_scores(group), _scores(best))
        row["difference"] = difference.mean if difference else None
        row["difference_ci95"] = difference.ci95 if difference else None
    return [row for row, _ in lines]


def _place(mean: float | None, higher: bool) -> float:
    return math.inf if mean is None else -mean if higher else mean


def _incomparable(group: list[SweptRun], best: list[SweptRun]) -> str:
    """Why two rows cannot be compared task by task; empty if they can."""
    if any(run.evaluation["mean"] is None for run in group):
        return "not finite"
    if group is best and len(group) == 1:
        return ""
    scores = {str(run.evaluation["score"]) for run in (*group, *best)}
    if len(scores) > 1:
        return f"other scores ({' and '.join(sorted(scores))})"
    names = ("this row", "the best row")
    reasons = [other_episodes(run.drawn, other.drawn, names) for run in group for other in best]
    return next((reason for reason in reasons if reason), "")


def _scores(group: list[SweptRun]) -> Scores:
    """The scores of the episodes, averaged over seeds."""
    mean: Scores = np.mean([run.evaluation["scores"] for run in group], axis=0)
    return mean


def _row(group: list[SweptRun]) -> dict[str, Any]:
    settings, first, _ = group[0]
    lost = sum(run.evaluation["mean"] is None for run in group)
    several = len(group) > 1
    means = [run.evaluation["mean"] for run in group]
    over_seeds = mean_interval([math.nan if mean is None else mean for mean in means])
    whole = f"{len(group)} seeds" if several else f"{len(first['scores'])} episodes"
    return {
        "settings": settings,
        "score": first["score"],
        "mean": None if lost else over_seeds.mean,
        "ci95": None if lost else over_seeds.ci95 if several else first["ci95"],
        "over": f"{lost} of {len(group)} runs diverged" if lost else whole,
        "seeds": len(group),
        "judged_by": brief(first),
    }
