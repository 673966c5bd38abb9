"""Panels side by side: lines with bands, marked places and shaded ranges. For figures that redo a paper's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from innerloop.plots.style import INK, TEXT, colour, dash, dress, label, log_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MANY = 50.0
SHAPES = ("*", "X", "D", "s")


class Line(TypedDict):
    """One series; ``low`` and ``high`` are its band, empty if it has none; ``dots`` draws points only."""

    name: str
    x: list[float]
    y: list[float]
    low: list[float]
    high: list[float]
    dots: bool


class Mark(TypedDict):
    """A place on the x axis (``y`` none: a vertical line) or in the panel (a star)."""

    name: str
    x: float
    y: float | None


class Panel(TypedDict):
    """One panel."""

    x: str
    y: str
    lines: list[Line]
    marks: list[Mark]
    span: tuple[float, float] | None
    log_x: bool
    log_y: bool


def line(
    name: str,
    x: Sequence[float],
    y: Sequence[float],
    half: Sequence[float] | None = None,
    dots: bool = False,
) -> Line:
    """A series, ``half`` the half-width of its band.

    >>> line("a", [1, 2], [3.0, 4.0], half=[0.5, 0.5])["low"]
    [2.5, 3.5]
    """
    low = [] if half is None else [b - h for b, h in zip(y, half, strict=True)]
    high = [] if half is None else [b + h for b, h in zip(y, half, strict=True)]
    return {"name": name, "x": list(x), "y": list(y), "low": low, "high": high, "dots": dots}


def panel(
    x: str,
    y: str,
    lines: Sequence[Line],
    marks: Sequence[Mark] = (),
    span: tuple[float, float] | None = None,
    log_x: bool = False,
    log_y: bool = False,
) -> Panel:
    """A panel with its axes named; see :class:`Panel`."""
    return {
        "x": x,
        "y": y,
        "lines": list(lines),
        "marks": list(marks),
        "span": span,
        "log_x": log_x,
        "log_y": log_y,
    }


def mark(name: str, x: float, y: float | None = None) -> Mark:
    """A marked place."""
    return {"name": name, "x": x, "y": y}


def panels_figure(
    panels: Sequence[Panel], columns: int = 2, width: float = 4.4, height: float = 3.2
) -> Figure:
    """Draws the panels in rows of ``columns``; a legend of its own under each."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    for i, one in enumerate(panels):
        axes = figure.add_subplot(rows, columns, i + 1)
        dress(axes)
        _draw(axes, one)
    return figure


def _draw(axes: Axes, one: Panel) -> None:
    _scale(axes, one)
    if one["span"] is not None:
        axes.axvspan(*one["span"], color=colour(1), alpha=0.15, linewidth=0)
    for i, series in enumerate(one["lines"]):
        _draw_line(axes, i, series)
    for j, place in enumerate(one["marks"]):
        _draw_mark(axes, j, place, colour(len(one["lines"]) + j))
    label(axes, x=one["x"], y=one["y"])
    handles, names = axes.get_legend_handles_labels()
    if handles:
        axes.legend(handles, names, frameon=False, fontsize=TEXT - 2, labelcolor=INK, handlelength=1.6)


def _scale(axes: Axes, one: Panel) -> None:
    if one["log_y"]:
        log_scale(axes, [v for series in one["lines"] for v in series["y"] if v > 0] or [1.0])
    if one["log_x"]:
        places = [v for series in one["lines"] for v in series["x"] if v > 0] or [1.0]
        narrow = max(places) < MANY * min(places)  # panels are small: fewer ticks than a page-wide figure has
        log_scale(axes, places if narrow else [1.0, 1000.0], which="x")
    else:
        axes.locator_params(axis="x", nbins=5)


def _draw_line(axes: Axes, i: int, series: Line) -> None:
    x, y, name, tint = series["x"], series["y"], series["name"], colour(i)
    if series["low"]:
        axes.fill_between(x, series["low"], series["high"], color=tint, alpha=0.2, linewidth=0)
    if series["dots"]:
        axes.plot(x, y, "o", color=tint, markersize=2.5, alpha=0.5, label=name)
    else:
        marker = "o" if len(x) <= 25 else ""
        style = {"color": tint, "linestyle": dash(i), "linewidth": 1.6}
        axes.plot(x, y, marker=marker, markersize=3, label=name, **style)


def _draw_mark(axes: Axes, j: int, place: Mark, tint: str) -> None:
    x, y, name = place["x"], place["y"], place["name"]
    if y is None:
        axes.axvline(x, color=tint, linestyle=(0, (4, 2)), linewidth=1.4, label=name)
    else:
        size = 11 if j % 4 == 0 else 7
        axes.plot([x], [y], SHAPES[j % 4], color=tint, markersize=size, label=name, zorder=5)
