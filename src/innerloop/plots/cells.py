"""Pictures of cells: what flows where, and through which operator (MetaNTK-NAS, Figure 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from innerloop.plots.style import COLOURS, INK, TEXT, blank_figure

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
    """From one box to another; no words for a node that goes into the output."""

    source: int
    target: int
    words: str


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
    (['c_{k-2}', 'c_{k-1}', '2', 'c_{k}'], {'source': 0, 'target': 2, 'words': 'conv_3x3'})
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
            {"source": source, "target": node, "words": "\n".join(words)} for source, words in joined.items()
        ]
        arrows.append({"source": node, "target": last, "words": ""})
    boxes.append({"name": "c_{k}", "what": "output", "x": 2.1 + 1.9 * len(nodes), "y": 0.0})
    return {"title": f"{title} cell", "boxes": boxes, "arrows": arrows}


def cell_picture_figure(data: Sequence[CellPicture]) -> Figure:
    """Draws :func:`cell_picture_data`, one cell below the other."""
    figure = blank_figure(6.6, 2.9 * len(data))
    for row, picture in enumerate(data):
        axes = figure.add_subplot(len(data), 1, row + 1)
        axes.set_axis_off()
        axes.set_title(picture["title"], color=INK, fontsize=TEXT, loc="left", pad=4)
        _draw(axes, picture)
    return figure


def _draw(axes: Axes, picture: CellPicture) -> None:
    boxes = picture["boxes"]
    for arrow in picture["arrows"]:
        _arrow(axes, boxes[arrow["source"]], boxes[arrow["target"]], arrow["words"])
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
    axes.set_ylim(-1.75, 1.75)


def _arrow(axes: Axes, source: CellBox, target: CellBox, words: str) -> None:
    """An arrow with its words on it, nearer to where it begins: arrows meet at their ends."""
    start, end = (source["x"], source["y"]), (target["x"], target["y"])
    axes.annotate(
        "",
        xy=end,
        xytext=start,
        arrowprops={
            "arrowstyle": "-|>",
            "color": INK,
            "alpha": 0.75 if words else 0.3,
            "linewidth": 1.1 if words else 0.8,
            "shrinkA": 13,
            "shrinkB": 13,
        },
    )
    if words:
        share = 0.42
        axes.text(
            start[0] + share * (end[0] - start[0]),
            start[1] + share * (end[1] - start[1]),
            words,
            ha="center",
            va="center",
            fontsize=TEXT - 1.5,
            color=INK,
            zorder=3,
            bbox={"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
        )
