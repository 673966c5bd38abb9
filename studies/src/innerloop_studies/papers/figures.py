"""Panels, bars, planes and fields: figures that several studies have."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from innerloop.report.plots.panels import Line, Panel, legend_below, line, panel, points, side_by_side
from innerloop.report.plots.style import COLOURS, INK, TEXT, blank_figure, dress, label

HARD, EASY = COLOURS[1], COLOURS[0]
NAL, MAML = COLOURS[5], COLOURS[2]
INKS = {"NAL": NAL, "MAML": MAML, "published": COLOURS[1], "ours": COLOURS[0], "ours, m = 500": COLOURS[3]}


def loglog(x: str, y: str, lines: Sequence[Line], **more: Any) -> Panel:
    """A panel with logarithms on both axes."""
    return panel(x, y, lines, log_x=True, log_y=True, **more)


def along(
    x: Sequence[float], measured: Sequence[float], by_method: Mapping[str, Any], key: str
) -> list[Line]:
    """NAL's and MAML's lines ``key`` along ``x``, with SGD's ends and their intervals where it was run."""
    lines = []
    for name, mine in ((name, by_method[name.lower()]) for name in ("NAL", "MAML")):
        ends = points(measured, mine.get(f"{key}_points", mine[key]), mine[f"{key}_ci95"])
        lines.append(line(name, x, mine[key], ink=INKS[name], points=ends))
    return lines


class Plane(TypedDict):
    """One environment: optima of hard and easy tasks and both solutions in the first two coordinates."""

    title: str
    hard: list[list[float]]
    easy: list[list[float]]
    nal: list[float]
    maml: list[float]
    risks: dict[str, float]


def planes_figure(planes: Sequence[Plane]) -> Figure:
    """Draws environments side by side on one scale, each with its risks as two bars below."""
    figure = blank_figure(2.6 * len(planes), 4.5)
    cells = figure.add_gridspec(2, len(planes), height_ratios=[3.4, 1])
    every = [value for plane in planes for p in (*plane["hard"], *plane["easy"]) for value in p]
    low, high = min(every), max(every)
    margin = 0.06 * (high - low)
    for i, plane in enumerate(planes):
        panel = figure.add_subplot(cells[0, i])
        dress(panel)
        _dots(panel, plane)
        panel.set_xlim(low - margin, high + margin)
        panel.set_ylim(low - margin, high + margin)
        panel.set_box_aspect(1)
        label(panel, x="first coordinate" if i == 0 else "", y=plane["title"])
        panel.tick_params(labelleft=i == 0)
        panel.set_ylabel("second coordinate" if i == 0 else "", color=INK, fontsize=TEXT)
        _risks(figure.add_subplot(cells[1, i]), plane["risks"], names=i == 0)
    legend_below(figure, figure.axes[0])
    return figure


def _risks(panel: Axes, risks: Mapping[str, float], names: bool) -> None:
    dress(panel)
    panel.grid(visible=False)
    nal, maml = risks["NAL"], risks["MAML"]
    panel.barh([1, 0], [nal, maml], color=[NAL, MAML], height=0.7)
    panel.set_yticks([1, 0], ["NAL", "MAML"] if names else ["", ""], color=INK, fontsize=TEXT)
    panel.set_xlim(0, max(nal, maml) * 1.3)
    for y, value in ((1, nal), (0, maml)):
        panel.annotate(f" {value:.3g}", (value, y), va="center", color=INK, fontsize=TEXT - 1)
    panel.tick_params(labelbottom=False, bottom=False, left=False)
    panel.spines["bottom"].set_visible(False)
    label(panel, y=f"excess risk: gain {nal / maml:.2f}")


def _dots(panel: Axes, plane: Plane) -> None:
    style: dict[str, Any] = {"alpha": 0.55, "linewidths": 0, "s": 16}
    hard, easy = ("hard", plane["hard"], HARD, "^"), ("easy", plane["easy"], EASY, "o")
    for name, places, colour, marker in (hard, easy):
        x, y = zip(*places, strict=True)
        panel.scatter(x, y, c=colour, marker=marker, label=f"{name} tasks' optima", **style)
    style = {"edgecolors": "white", "linewidths": 1.0, "zorder": 5}
    for name, (a, b), marker, size in (("NAL", plane["nal"], "s", 95), ("MAML", plane["maml"], "*", 210)):
        panel.scatter([a], [b], c=INKS[name], marker=marker, s=size, label=f"{name} starts here", **style)


def bars_figure(
    groups: Mapping[str, Mapping[str, tuple[float, float]]],
    title: str,
    unit: str = "%",
    columns: int | None = None,
    width: float = 3.5,
) -> Figure:
    """Draws one panel per group: a horizontal bar per method with its interval and its number."""
    height = 0.55 + 0.34 * max(len(group) for group in groups.values())
    height += 0.2 * max(name.count("\n") for name in groups)
    columns = columns or len(groups)
    figure, axes = side_by_side(len(groups), columns, width, height)
    whiskers: dict[str, Any] = {"ecolor": INK, "elinewidth": 1, "capsize": 2}
    for i, (place, (name, rows)) in enumerate(zip(axes, groups.items(), strict=True)):
        place.grid(visible=False)
        names = list(rows)[::-1]
        values = [rows[n][0] for n in names]
        errors = [0 if math.isnan(rows[n][1]) else rows[n][1] for n in names]
        inks = [INKS.get(n.split(" ")[0].split("-")[0], COLOURS[4]) for n in names]
        at = range(len(names))
        place.barh(at, values, xerr=errors, height=0.68, color=inks, error_kw=whiskers)
        for y, (value, error) in enumerate(zip(values, errors, strict=True)):
            edge = (max(value, 0) + error, y)
            place.annotate(f"  {value:.3g}", edge, va="center", color=INK, fontsize=TEXT - 1)
        place.set_yticks(at, names if i % columns == 0 else [""] * len(names), fontsize=TEXT, color=INK)
        if unit == "%":
            place.set_xlim(0, 113)
        else:
            place.margins(x=0.15)
        label(place, x=f"accuracy, {unit}" if unit == "%" else unit, y=name)
    figure.suptitle(title, color=INK, fontsize=TEXT + 0.5, x=0.01, ha="left")
    return figure


EDGE = "#1b1f26"  # around what lies on the contours, which do not follow the paper as ink does

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


def fields_figure(fields: Sequence[Field]) -> Figure:
    """Draws loss landscapes over a neuron's two weights; below each, the loss where NAL and MAML end."""
    figure, axes = side_by_side(len(fields), 2, 3.9, 3.9)
    figure.set_layout_engine("constrained", h_pad=0.12)
    for i, (place, field) in enumerate(zip(axes, fields, strict=True)):
        _contours(figure, place, field)
        _marks(place, field)
        losses = ", ".join(f"{value:.3g} at {name}'s point" for name, value in field["at"].items())
        label(place, x="first weight" + (f"\nloss {losses}" if losses else ""), y=field["title"])
        place.set_ylabel("" if i % 2 else "second weight", color=INK, fontsize=TEXT)
        place.set_aspect("equal")
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
