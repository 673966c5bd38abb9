"""Pictures of cells: what flows where, and through which operator (MetaNTK-NAS, Figure 2)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from innerloop.report.plots.style import COLOURS, INK, TEXT, blank_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INPUTS = 2
_BOX = {"input": COLOURS[2], "node": COLOURS[0], "output": COLOURS[4]}
"""Green, blue and yellow, as in the paper."""


class CellBox(TypedDict):
    """A value in the cell: its name, what it is, and where it is drawn."""

    name: str
    what: str
    x: float
    y: float


class CellArrow(TypedDict):
    """From one box to another; ``bend`` is how far it leaves the straight line, as a share of its length."""

    source: int
    target: int
    words: str
    bend: float


class CellPicture(TypedDict):
    """One cell."""

    title: str
    boxes: list[CellBox]
    arrows: list[CellArrow]


def cell_picture_data(cells: Mapping[str, Sequence[Sequence[tuple[str, int]]]]) -> list[CellPicture]:
    """From the edges into every node, by name of the cell; operators on one edge are written together.

    Args:
        cells: ``genotype._asdict()``, or for every cell a list of nodes of ``(operator, source)``.

    >>> data = cell_picture_data({"normal": [[("conv_3x3", 0), ("skip_connect", 1)]]})
    >>> [box["name"] for box in data[0]["boxes"]], data[0]["arrows"][0]
    (['c_{k-2}', 'c_{k-1}', '2', 'c_{k}'], {'source': 0, 'target': 2, 'words': 'conv_3x3', 'bend': 0.0})
    """
    return [_picture(name, nodes) for name, nodes in cells.items()]


def _picture(title: str, nodes: Sequence[Sequence[tuple[str, int]]]) -> CellPicture:
    boxes: list[CellBox] = [
        {"name": "c_{k-2}", "what": "input", "x": 0.0, "y": 1.0},
        {"name": "c_{k-1}", "what": "input", "x": 0.0, "y": -1.0},
    ]
    arrows: list[CellArrow] = []
    last = INPUTS + len(nodes)
    for node, edges in enumerate(nodes, start=INPUTS):
        place = node - INPUTS
        # nodes go up and down in turn, so that arrows do not run through boxes
        height = (0.0, 1.15, -1.15)[place % 3]
        boxes.append({"name": str(node), "what": "node", "x": 2.1 + 1.9 * place, "y": height})
        joined: dict[int, list[str]] = {}
        for operator, source in edges:
            joined.setdefault(source, []).append(operator)
        arrows += [
            {"source": s, "target": node, "words": "\n".join(words), "bend": _bend(boxes[s], boxes[node])}
            for s, words in joined.items()
        ]
        arrows.append({"source": node, "target": last, "words": "", "bend": 0.0})
    boxes.append({"name": "c_{k}", "what": "output", "x": 2.1 + 1.9 * len(nodes), "y": 0.0})
    return {
        "title": "reduction cell" if title == "reduce" else f"{title} cell",
        "boxes": boxes,
        "arrows": arrows,
    }


def _bend(source: CellBox, target: CellBox) -> float:
    """An arrow from an input across the middle goes round the first node."""
    if source["what"] != "input" or source["y"] * target["y"] >= 0:
        return 0.0
    return -0.2 if source["y"] > 0 else 0.25


def cell_picture_figure(data: Sequence[CellPicture]) -> Figure:
    """Draws :func:`cell_picture_data`, one cell below the other."""
    figure = blank_figure(6.6, 2.6 * len(data))
    for row, picture in enumerate(data):
        axes = figure.add_subplot(len(data), 1, row + 1)
        axes.set_axis_off()
        axes.set_title(picture["title"], color=INK, fontsize=TEXT, loc="left", pad=4)
        _draw(axes, picture)
    return figure


def _draw(axes: Axes, picture: CellPicture) -> None:
    boxes = picture["boxes"]
    for arrow in picture["arrows"]:
        _arrow(axes, boxes[arrow["source"]], boxes[arrow["target"]], arrow["words"], arrow["bend"])
    for box in boxes:
        axes.text(
            box["x"],
            box["y"],
            f"${box['name']}$",
            ha="center",
            va="center",
            fontsize=TEXT,
            color="white",
            zorder=4,
            bbox={"boxstyle": "round,pad=0.45", "facecolor": _BOX[box["what"]], "edgecolor": "none"},
        )
    axes.set_xlim(-0.6, max(box["x"] for box in boxes) + 0.6)
    axes.set_ylim(-1.5, 1.5)
    axes.set_aspect("equal")  # words on bent arrows are placed as if it were


def _arrow(axes: Axes, source: CellBox, target: CellBox, words: str, bend: float) -> None:
    """An arrow with its words on it, nearer to where it begins: arrows meet at their ends."""
    start, end = (source["x"], source["y"]), (target["x"], target["y"])
    axes.annotate(
        "",
        xy=end,
        xytext=start,
        arrowprops={
            "arrowstyle": "-|>",
            "color": INK,
            "alpha": 0.45 if words else 0.2,
            "linewidth": 1.1 if words else 0.8,
            "shrinkA": 13,
            "shrinkB": 13,
            "connectionstyle": f"arc3,rad={bend}",
        },
    )
    if words:
        x, y, angle = _on_arrow(start, end, bend, {-0.2: 0.75, 0.25: 0.5}.get(bend, 0.42))
        axes.text(
            x,
            y,
            words,
            ha="center",
            va="bottom",
            rotation=angle,
            rotation_mode="anchor",
            fontsize=TEXT - 1.5,
            color=INK,
            zorder=3,
        )


def _on_arrow(
    start: tuple[float, float], end: tuple[float, float], bend: float, share: float
) -> tuple[float, float, float]:
    """The point at this share of matplotlib's ``arc3``, a quadratic Bézier curve, and its slope."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    control = (start[0] + dx / 2 + bend * dy, start[1] + dy / 2 - bend * dx)
    a, b, c = (1 - share) ** 2, 2 * share * (1 - share), share**2
    x, y = (a * p + b * q + c * r for p, q, r in zip(start, control, end, strict=True))
    along = [(1 - share) * (q - p) + share * (r - q) for p, q, r in zip(start, control, end, strict=True)]
    return x, y, math.degrees(math.atan2(along[1], along[0]))
