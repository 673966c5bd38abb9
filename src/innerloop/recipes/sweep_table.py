"""The table of a sweep: intervals over seeds and episodes, and paired differences to the best."""

from __future__ import annotations

from typing import Any

import numpy as np

from innerloop.core.statistics import mean_interval, paired_difference

SEED = "run.seed"


def table_of(results: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[dict[str, Any]]:
    """One row per setting apart from the seed, best first.

    The interval is over seeds where there are several (training noise included), else over episodes.
    ``difference`` to the best row is taken episode by episode, averaged over seeds, where both rows were
    judged on the same episodes.

    Args:
        results: for every run its swept settings and its evaluation.

    >>> easy = {"score": "mse", "mean": 1.0, "ci95": 0.1, "scores": [1.0, 1.0]}
    >>> hard = {"score": "mse", "mean": 2.0, "ci95": 0.1, "scores": [2.0, 2.0]}
    >>> [row["difference"] for row in table_of([({"inner.lr": 0.1}, hard), ({"inner.lr": 0.2}, easy)])]
    [0.0, 1.0]
    """
    groups: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for settings, found in results:
        rest = {key: value for key, value in settings.items() if key != SEED}
        groups.setdefault(repr(rest), []).append((rest, found))
    rows = [_row(group) for group in groups.values()]
    higher = results[0][1]["score"] == "accuracy"
    rows.sort(key=lambda row: -row["mean"] if higher else row["mean"])
    best = rows[0]["_scores"]
    for row in rows:
        scores = row.pop("_scores")
        same = scores.shape == best.shape
        difference = paired_difference(scores, best) if same else None
        row["difference"] = difference.mean if difference else None
        row["difference_ci95"] = difference.ci95 if difference else None
    return rows


def _row(group: list[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, Any]:
    settings, first = group[0]
    means = [found["mean"] for _, found in group]
    several = len(group) > 1
    over_seeds = mean_interval(means)
    scores = np.mean([found["scores"] for _, found in group], axis=0)
    return {
        "settings": settings,
        "score": first["score"],
        "mean": over_seeds.mean,
        "ci95": over_seeds.ci95 if several else first["ci95"],
        "over": f"{len(group)} seeds" if several else f"{len(first['scores'])} episodes",
        "seeds": len(group),
        "_scores": scores,
    }
