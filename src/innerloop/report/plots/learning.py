"""The learning curve: accuracy on examples left out against the number of examples to learn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from innerloop.report.plots.style import colour, label, new_figure, whole_steps

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
