"""Panels side by side: lines, points with intervals, marked places. For figures that redo a paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from innerloop.report.plots.style import INK, TEXT, blank_figure, colour, dash, dress, label, log_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MANY = 50.0
SHAPES = ("*", "X", "D", "s")


class Points(NamedTuple):
    """What was measured beside a line: places with half the length of their bars, empty if they have none."""

    x: Sequence[float]
    y: Sequence[float]
    half: Sequence[float] | None = None


class Line(NamedTuple):
    """One series with its band, if any; ``dots`` draws points only, ``points`` are measured beside it."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dots: bool = False
    ink: str | None = None  # where a method has one in all figures
    points: Points | None = None


class Mark(NamedTuple):
    """A place on the x axis (``y`` none: a vertical line) or in the panel (a star)."""

    name: str
    x: float
    y: float | None = None


class Panel(NamedTuple):
    """One panel. ``heights``: marked values of y; ``limits``: of y; ``ticks``: words at 0, 1, … on x."""

    x: str
    y: str
    lines: Sequence[Line]
    marks: Sequence[Mark] = ()
    span: tuple[float, float] | None = None
    log_x: bool = False
    log_y: bool = False
    heights: Mapping[str, float] | None = None
    limits: tuple[float, float] | None = None
    ticks: Sequence[str] = ()


points, mark, panel = Points, Mark, Panel


def line(
    name: str,
    x: Sequence[float],
    y: Sequence[float],
    half: Sequence[float] | None = None,
    dots: bool = False,
    ink: str | None = None,
    points: Points | None = None,
) -> Line:
    """A series, ``half`` the half-width of its band."""
    low, high = (
        ([], []) if half is None else ([b + s * h for b, h in zip(y, half, strict=True)] for s in (-1, 1))
    )
    return Line(name, list(x), list(y), low, high, dots, ink, points)


def side_by_side(count: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure of ``count`` empty panels in rows of ``columns``, each ``width`` by ``height`` inches."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = blank_figure(width * columns, height * rows)
    axes = [figure.add_subplot(rows, columns, i + 1) for i in range(count)]
    for one in axes:
        dress(one)
    return figure, axes


def panels_figure(
    panels: Sequence[Panel],
    columns: int = 2,
    width: float = 4.4,
    height: float = 3.2,
    shared_legend: bool = False,
) -> Figure:
    """Draws the panels in rows of ``columns``, each with a legend, or one below for all of them."""
    figure, places = side_by_side(len(panels), columns, width, height)
    for axes, one in zip(places, panels, strict=True):
        _draw(axes, one)
        handles, names = axes.get_legend_handles_labels()
        if handles and not shared_legend:
            axes.legend(handles, names, frameon=False, fontsize=TEXT - 2, labelcolor=INK, handlelength=1.6)
    if shared_legend:
        legend_below(figure, *places)
    return figure


def legend_below(figure: Figure, *panels: Axes) -> None:
    """One legend for all panels, each name once."""
    known: dict[str, Any] = {}
    for panel in panels:
        handles, names = panel.get_legend_handles_labels()
        known |= dict(zip(names, handles, strict=True))
    options: dict[str, Any] = {"frameon": False, "fontsize": TEXT - 0.5, "labelcolor": INK}
    columns = min(4, max(1, len(known)))
    figure.legend(list(known.values()), list(known), loc="outside lower center", ncols=columns, **options)


def _draw(axes: Axes, one: Panel) -> None:
    _scale(axes, one)
    if one.span is not None:
        axes.axvspan(*one.span, color=colour(1), alpha=0.15, linewidth=0)
    for i, series in enumerate(one.lines):
        _draw_line(axes, i, series)
    for j, place in enumerate(one.marks):
        _draw_mark(axes, j, place, colour(len(one.lines) + j))
    for words, height in (one.heights or {}).items():
        _draw_height(axes, words, height)
    if one.limits is not None:
        axes.set_ylim(*one.limits)
    label(axes, x=one.x, y=one.y)


def _scale(axes: Axes, one: Panel) -> None:
    if one.log_y:
        log_scale(axes, [v for series in one.lines for v in series.y if v > 0] or [1.0])
    if one.log_x:
        places = [v for series in one.lines for v in series.x if v > 0] or [1.0]
        narrow = max(places) < MANY * min(places)  # panels are small: fewer ticks than a page-wide figure has
        log_scale(axes, places if narrow else [1.0, 1000.0], which="x")
    elif one.ticks:
        axes.set_xticks(range(len(one.ticks)), one.ticks)
    else:
        axes.locator_params(axis="x", nbins=5)


def _draw_line(axes: Axes, i: int, series: Line) -> None:
    x, y, name, tint = series.x, series.y, series.name, series.ink or colour(i)
    if series.low:
        axes.fill_between(x, series.low, series.high, color=tint, alpha=0.2, linewidth=0)
    if series.dots:
        axes.plot(x, y, "o", color=tint, markersize=2.5, alpha=0.5, label=name)
    elif y:
        marker = "o" if len(x) <= 25 and series.points is None else ""
        style = {"color": tint, "linestyle": dash(i), "linewidth": 1.6}
        axes.plot(x, y, marker=marker, markersize=3, label=name, **style)
    if series.points is not None:
        _draw_points(axes, series.points, tint, None if y else name)


def _draw_points(axes: Axes, points: Points, tint: str, name: str | None) -> None:
    style: dict[str, Any] = {"fmt": "o", "color": tint, "markersize": 4.5, "elinewidth": 1.2, "capsize": 2}
    axes.errorbar(points.x, points.y, yerr=points.half or None, label=name, **style)


def _draw_height(axes: Axes, words: str, height: float) -> None:
    axes.axhline(height, color=INK, linewidth=0.8, alpha=0.5, linestyle=(0, (4, 3)))
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom"}
    axes.annotate(words, (0.99, height), fontsize=TEXT - 1, color=INK, **place)


def _draw_mark(axes: Axes, j: int, place: Mark, tint: str) -> None:
    x, y, name = place.x, place.y, place.name
    if y is None:
        axes.axvline(x, color=tint, linestyle=(0, (4, 2)), linewidth=1.4, label=name)
    else:
        size = 11 if j % 4 == 0 else 7
        axes.plot([x], [y], SHAPES[j % 4], color=tint, markersize=size, label=name, zorder=5)


def bound_figure(loss: Sequence[float], bound: Sequence[float]) -> Figure:
    """The loss along training beside its bound."""
    steps = list(range(len(loss)))
    lines = [line("training loss", steps, loss), line("bound", steps, bound)]
    part = panel("outer steps", "training loss and its bound", lines, log_y=True)
    return panels_figure([part], width=5.5)


def spectrum_figure(name: str, eigenvalues: Sequence[float]) -> Figure:
    """A spectrum; eigenvalues that rounding made negative or zero are left out."""
    values = [value for value in eigenvalues if value > 0]
    series = line(name, range(1, len(values) + 1), values, dots=True)
    return panels_figure([panel("rank", "eigenvalue", [series], log_y=True)], width=5.5)
