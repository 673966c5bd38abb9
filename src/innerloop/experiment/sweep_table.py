"""The table of a sweep: intervals over seeds and episodes, and paired differences to the best."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innerloop.core.statistics import mean_interval, paired_difference
from innerloop.recipes.protocols import brief, other_tasks

SEED = "run.seed"
Scores = NDArray[np.float64]


def table_of(results: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[dict[str, Any]]:
    """One row per setting apart from the seed, best first.

    The interval is over seeds where there are several (training noise included), else over episodes.
    ``difference`` to the best row is taken episode by episode, averaged over seeds, where both rows were
    judged on the same episodes; else ``reason`` says why there is none. Rows with a run that diverged have no
    mean and stand last.

    Args:
        results: for every run its swept settings and its evaluation.

    >>> easy = {"score": "mse", "mean": 1.0, "ci95": 0.1, "scores": [1.0, 1.0]}
    >>> hard = {"score": "mse", "mean": 2.0, "ci95": 0.1, "scores": [2.0, 2.0]}
    >>> lost = {"score": "mse", "mean": None, "ci95": None, "scores": []}
    >>> rows = table_of([({"inner.lr": 9}, lost), ({"inner.lr": 0.1}, hard), ({"inner.lr": 0.2}, easy)])
    >>> [row["difference"] for row in rows]
    [0.0, 1.0, None]
    """
    groups: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for settings, found in results:
        rest = {key: value for key, value in settings.items() if key != SEED}
        groups.setdefault(repr(rest), []).append((rest, found))
    rows = [_row(group) for group in groups.values()]
    higher = results[0][1]["score"] == "accuracy"
    rows.sort(key=lambda row: math.inf if row["mean"] is None else -row["mean"] if higher else row["mean"])
    best = dict(rows[0])
    for row in rows:
        scores, first = row.pop("_scores"), row.pop("_first")
        row["reason"] = row.pop("_lost") or _incomparable(first, best["_first"], scores, best["_scores"])
        difference = None if row["reason"] else paired_difference(scores, best["_scores"])
        row["difference"] = difference.mean if difference else None
        row["difference_ci95"] = difference.ci95 if difference else None
    return rows


def _incomparable(first: dict[str, Any], best: dict[str, Any], ours: Scores, theirs: Scores) -> str:
    """Why two rows cannot be compared task by task; empty if they can."""
    differing = other_tasks(first, best)
    if differing:
        return f"other tasks ({', '.join(differing)})"
    return "" if ours.shape == theirs.shape else "another number of tasks"


def _row(group: list[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, Any]:
    settings, first = group[0]
    lost = sum(found["mean"] is None for _, found in group)
    several = len(group) > 1
    over_seeds = mean_interval([math.nan if found["mean"] is None else found["mean"] for _, found in group])
    whole = f"{len(group)} seeds" if several else f"{len(first['scores'])} episodes"
    return {
        "settings": settings,
        "score": first["score"],
        "mean": None if lost else over_seeds.mean,
        "ci95": None if lost else over_seeds.ci95 if several else first["ci95"],
        "over": f"{lost} of {len(group)} runs diverged" if lost else whole,
        "seeds": len(group),
        "judged_by": brief(first),
        "_scores": np.zeros(0) if lost else np.mean([found["scores"] for _, found in group], axis=0),
        "_first": first,
        "_lost": "not finite" if lost else "",
    }
