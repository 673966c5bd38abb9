"""How scores spread over episodes, how far probabilities can be believed, and what more examples bring."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from innerloop.report.plots.style import INK, colour, dash, label, legend, log_scale, new_figure, whole_steps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_BINS, FEWEST_BINS = 30, 8  # bounds on the number of bars


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


BINS = 15  # as many as the expected calibration error is commonly taken over


class Calibration(TypedDict):
    """Per bin of equal width its labels; of full ones, mean probability and share that is right."""

    counts: list[int]
    called: list[float]
    right: list[float]
    error: float


def calibration_data(probability: Sequence[float], right: Sequence[bool], bins: int = BINS) -> Calibration:
    """From the probability of every label that was given, and whether it is right.

    Args:
        probability: of the label that was given.
        right: whether that label is right.
        bins: of equal width from 0 to 1.

    >>> data = calibration_data([0.8, 0.8, 0.3], [True, False, False], bins=2)
    >>> data["counts"], data["right"], round(data["error"], 3)
    ([1, 2], [0.0, 0.5], 0.3)
    """
    called, hits = np.asarray(probability, np.float64), np.asarray(right, np.float64)
    place = np.clip(np.ceil(called * bins).astype(np.int64), 1, bins) - 1
    counts = np.bincount(place, minlength=bins)
    sums = [np.bincount(place, weights=values, minlength=bins) for values in (called, hits)]
    full = counts > 0
    means = [(total[full] / counts[full]).tolist() for total in sums]
    error = float(np.abs(sums[0] - sums[1]).sum() / max(1, len(called)))
    return {"counts": counts.tolist(), "called": means[0], "right": means[1], "error": error}


def calibration_figure(data: Calibration) -> Figure:
    """Draws :func:`calibration_data`: right against called above, how many labels of each below."""
    figure, (above, below) = new_figure(rows=2, height=4.2)
    above.plot(
        [0, 100], [0, 100], color=INK, alpha=0.5, linewidth=1.0, linestyle=(0, (4, 3)), label="as called"
    )
    called, right = ([100 * share for share in shares] for shares in (data["called"], data["right"]))
    above.plot(called, right, color=colour(0), linewidth=1.8, marker="o", markersize=4, label="these labels")
    above.set_xlim(0, 100)
    above.set_ylim(0, 103)
    edges = np.linspace(0, 100, len(data["counts"]) + 1)
    below.stairs(data["counts"], edges, fill=True, color=colour(0), alpha=0.45)
    legend(above, loc="upper left")
    label(above, y="right, per cent")
    label(below, x="how probable the label was called, per cent", y="labels")
    return figure


class LearningCurve(TypedDict):
    """Accuracies in per cent and their 95 % band, by examples of each class."""

    shots: list[int]
    accuracy: list[float]
    low: list[float]
    high: list[float]


def learning_curve_data(points: Sequence[Mapping[str, Any]]) -> LearningCurve:
    """From points with ``shots``, ``accuracy`` and ``ci95``, as ``innerloop predict --json`` tells them.

    >>> learning_curve_data([{"shots": 1, "accuracy": 0.9, "ci95": 0.2}])["high"]
    [100.0]
    """
    shots = [int(point["shots"]) for point in points]
    values = [100 * float(point["accuracy"]) for point in points]
    half = [100 * float(point["ci95"]) for point in points]
    low = [max(0.0, value - width) for value, width in zip(values, half, strict=True)]
    high = [min(100.0, value + width) for value, width in zip(values, half, strict=True)]
    return {"shots": shots, "accuracy": values, "low": low, "high": high}


def learning_curve_figure(data: LearningCurve) -> Figure:
    """Draws :func:`learning_curve_data`: a line with markers, its band behind it."""
    figure, (axes,) = new_figure()
    axes.fill_between(data["shots"], data["low"], data["high"], color=colour(0), alpha=0.2, linewidth=0)
    axes.plot(data["shots"], data["accuracy"], color=colour(0), linewidth=1.8, marker="o", markersize=4)
    whole_steps(axes)
    label(axes, x="examples of each class", y="right among examples left out, per cent")
    return figure
