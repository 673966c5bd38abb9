"""How scores spread over episodes: the mean hides the tasks on which a learner fails."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from innerloop.report.plots.style import colour, dash, label, legend, log_scale, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_BINS, FEWEST_BINS = 30, 8
"""Bounds on the number of bars."""


class ScoreCounts(TypedDict):
    """One run: how many episodes fell in each bin, and what could not be counted."""

    name: str
    counts: list[int]
    mean: float
    median: float
    not_finite: int


class ScoreHistogram(TypedDict):
    """Several runs over common bins."""

    score: str
    edges: list[float]
    log: bool
    runs: list[ScoreCounts]


def score_histogram_data(scores: Mapping[str, Sequence[float]], score: str = "score") -> ScoreHistogram:
    """From per-episode scores by run name. Bins are equal in the logarithm when scores span decades.

    >>> data = score_histogram_data({"maml": [0.0, 0.0, 1.0, float("inf")]}, "accuracy")
    >>> sum(data["runs"][0]["counts"]), data["runs"][0]["not_finite"], round(data["runs"][0]["mean"], 3)
    (3, 1, 0.333)
    """
    good = {name: [float(v) for v in values if math.isfinite(v)] for name, values in scores.items()}
    everything = np.asarray([v for values in good.values() for v in values], dtype=np.float64)
    log = bool(everything.size) and score != "accuracy" and _spans_decades(everything)
    edges = _edges(everything, log)
    runs: list[ScoreCounts] = []
    for name, values in good.items():
        counts, _ = np.histogram(values, bins=edges)
        runs.append(
            {
                "name": name,
                "counts": [int(count) for count in counts],
                "mean": float(np.mean(values)) if values else math.nan,
                "median": float(np.median(values)) if values else math.nan,
                "not_finite": len(scores[name]) - len(values),
            }
        )
    return {"score": score, "edges": [float(edge) for edge in edges], "log": log, "runs": runs}


def _spans_decades(values: np.ndarray) -> bool:
    """Judged by the middle 98 %, so that one lucky episode does not choose the axis."""
    low, high = np.quantile(values, [0.01, 0.99])
    return bool(values.min() > 0 and high > 30 * low)


def _edges(values: np.ndarray, log: bool) -> np.ndarray:
    """Freedman–Diaconis edges, at least 8 and at most 30 bins, common to all runs."""
    if not values.size:
        return np.linspace(0.0, 1.0, FEWEST_BINS + 1)
    drawn = np.log10(values) if log else values
    largest = float(np.abs(drawn).max())
    if np.ptp(drawn) <= 1e-9 * largest:  # nearly one number, perhaps a huge one of a run that diverged
        around = max(0.5, 0.01 * largest)
        edges = np.linspace(drawn.min() - around, drawn.max() + around, FEWEST_BINS + 1)
    else:
        bins = len(np.histogram_bin_edges(drawn, bins="auto")) - 1
        edges = np.histogram_bin_edges(drawn, bins=int(np.clip(bins, FEWEST_BINS, MOST_BINS)))
    edges = 10.0**edges if log else edges
    edges[0], edges[-1] = min(edges[0], values.min()), max(edges[-1], values.max())
    return edges


def score_histogram_figure(data: ScoreHistogram) -> Figure:
    """Draws :func:`score_histogram_data`: filled steps, with a line at each mean."""
    figure, (axes,) = new_figure()
    if data["log"]:
        log_scale(axes, data["edges"], "x")
    several = len(data["runs"]) > 1
    for i, run in enumerate(data["runs"]):
        axes.stairs(run["counts"], data["edges"], fill=True, color=colour(i), alpha=0.15 if several else 0.45)
        axes.stairs(
            run["counts"], data["edges"], color=colour(i), linewidth=1.5, linestyle=dash(i), label=run["name"]
        )
        if math.isfinite(run["mean"]):
            axes.axvline(run["mean"], color=colour(i), linewidth=1.4, linestyle=(0, (3, 2)))
    tallest = max((count for run in data["runs"] for count in run["counts"]), default=1)
    room = 0.1 + 0.09 * len(data["runs"]) if several else 0.06  # for the legend
    axes.set_ylim(0, max(tallest, 1) * (1 + room))
    means = "means" if several else "mean"
    label(axes, x=f"{data['score']} of an episode", y=f"episodes (dashed: {means})")
    legend(axes, loc="best")
    return figure
