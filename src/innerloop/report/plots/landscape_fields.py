"""Loss landscapes over two weights: contours, the tasks' optima, and where NAL and MAML end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from innerloop.report.plots.landscape import HARD, INKS
from innerloop.report.plots.panels import legend_below, side_by_side
from innerloop.report.plots.style import INK, TEXT, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EDGE = "#1b1f26"
"""Around what lies on the contours, which do not follow the paper as ink does."""

OPTIMA = {"hard": ("^", HARD, "hard task's optimum"), "easy": ("o", "#f5f7fa", "easy task's optimum")}
SOLUTIONS = {"NAL": ("s", 75), "MAML": ("*", 200)}


class Field(TypedDict):
    """A loss on a grid, the tasks' optima (with their kind), both solutions, and the loss there."""

    title: str
    x: list[float]
    y: list[float]
    z: list[list[float]]
    optima: list[tuple[float, float, str]]
    solutions: dict[str, list[float]]
    at: dict[str, float]


def fields_figure(fields: Sequence[Field], columns: int = 2) -> Figure:
    """Draws loss landscapes over a neuron's two weights; below each, the loss where NAL and MAML end."""
    figure, axes = side_by_side(len(fields), columns, 3.9, 3.9)
    figure.set_layout_engine("constrained", h_pad=0.12)
    for i, (panel, field) in enumerate(zip(axes, fields, strict=True)):
        _contours(figure, panel, field)
        _marks(panel, field)
        losses = ", ".join(f"{value:.3g} at {name}'s point" for name, value in field["at"].items())
        label(panel, x="first weight" + (f"\nloss {losses}" if losses else ""), y=field["title"])
        if i % columns == 0:
            panel.set_ylabel("second weight", color=INK, fontsize=TEXT)
        panel.set_aspect("equal")
    legend_below(figure, *axes)
    return figure


def _marks(panel: Axes, field: Field) -> None:
    for kind, (marker, colour, name) in OPTIMA.items():
        mine = [(a, b) for a, b, k in field["optima"] if k == kind]
        if mine:
            x, y = zip(*mine, strict=True)
            options: dict[str, Any] = {"c": colour, "edgecolors": EDGE, "linewidths": 0.9, "zorder": 5}
            panel.scatter(x, y, s=62, marker=marker, label=name, **options)
    for name, (a, b) in field["solutions"].items():
        marker, size = SOLUTIONS[name]
        options = {"c": INKS[name], "edgecolors": "white", "linewidths": 1.1, "zorder": 6}
        panel.scatter([a], [b], s=size, marker=marker, label=f"{name} ends here", **options)


def _contours(figure: Figure, panel: Axes, field: Field) -> None:
    """Filled contours, close together near the minimum, where the story is."""
    import numpy as np

    z = np.asarray(field["z"])
    low, high = float(z.min()), float(np.quantile(z, 0.9))
    levels = low + (high - low) * np.linspace(0, 1, 16) ** 2
    panel.grid(visible=False)
    filled = panel.contourf(field["x"], field["y"], z, levels=levels, cmap="Blues_r", extend="max")
    panel.contour(field["x"], field["y"], z, levels=levels[1::3], colors="white", linewidths=0.5, alpha=0.7)
    whole = [tick for tick in range(-9, 10) if field["x"][0] <= tick <= field["x"][-1]]
    panel.set_xticks(whole)
    panel.set_yticks(whole)
    bar = figure.colorbar(filled, ax=panel, shrink=0.85, ticks=levels[::5], format="%.2g")
    bar.outline.set_visible(False)
    bar.ax.set_title("loss", fontsize=TEXT - 1.5, color=INK, pad=6)
    bar.ax.tick_params(labelsize=TEXT - 1.5, colors=INK)
