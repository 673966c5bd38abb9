"""What adaptation does to one regression task: before, after, and the truth."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypedDict

from innerloop.report.plots.style import INK, colour, label, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class SinusoidPicture(TypedDict):
    """Curves on a common grid ``x``, sorted, and the support points."""

    x: list[float]
    truth: list[float]
    before: list[float]
    after: list[float]
    x_support: list[float]
    y_support: list[float]
    steps: int


def sinusoid_data(
    x: Iterable[float],
    truth: Iterable[float],
    before: Iterable[float],
    after: Iterable[float],
    x_support: Iterable[float],
    y_support: Iterable[float],
    steps: int,
) -> SinusoidPicture:
    """Sorts the curves by ``x``. Takes lists or one-dimensional tensors.

    Args:
        x: places of the curves, in any order.
        truth: the task's own function there.
        before: the prediction before adaptation.
        after: the prediction after it.
        x_support: inputs of the support set.
        y_support: their targets.
        steps: inner steps between ``before`` and ``after``.

    >>> data = sinusoid_data([2.0, 1.0], [0.2, 0.1], [0.0, 0.0], [0.2, 0.1], [1.5], [0.15], steps=5)
    >>> data["x"], data["truth"]
    ([1.0, 2.0], [0.1, 0.2])
    """
    rows = sorted(zip(*map(_floats, (x, truth, before, after)), strict=True))
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
    return {
        "x": columns[0],
        "truth": columns[1],
        "before": columns[2],
        "after": columns[3],
        "x_support": _floats(x_support),
        "y_support": _floats(y_support),
        "steps": steps,
    }


def _floats(values: Iterable[float]) -> list[float]:
    return [float(value) for value in values]


def sinusoid_figure(data: SinusoidPicture) -> Figure:
    """Draws :func:`sinusoid_data`: truth in ink, prediction before (dashed) and after adaptation."""
    figure, (axes,) = new_figure()
    steps = f"{data['steps']} step" + ("" if data["steps"] == 1 else "s")
    axes.plot(data["x"], data["truth"], color=INK, linewidth=1.4, alpha=0.8, label="true function")
    axes.plot(
        data["x"], data["before"], color=colour(0), linewidth=1.4, linestyle=(0, (4, 2)), label="before"
    )
    axes.plot(data["x"], data["after"], color=colour(1), linewidth=2.0, label=f"after {steps}")
    axes.plot(
        data["x_support"],
        data["y_support"],
        linestyle="none",
        marker="o",
        markersize=5.5,
        markerfacecolor=colour(2),
        markeredgecolor=colour(2),
        label="support points",
    )
    axes.legend(
        *axes.get_legend_handles_labels(),
        frameon=False,
        fontsize=9.0,
        labelcolor=INK,
        ncols=2,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        handlelength=1.8,
    )
    label(axes, x="x")
    return figure
