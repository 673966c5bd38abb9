"""How methods, pretrained networks and what needs no training stand beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from innerloop.report.plots.panels import legend_below
from innerloop.report.plots.style import COLOURS, label, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = {
    "trained": ("trained here", COLOURS[0]),
    "pretrained": ("trained by others", COLOURS[1]),
    "untrained": ("not trained", COLOURS[2]),
}


class Standing(TypedDict):
    """One row: its name, its kind, its score with half its interval, and whether it reached the end."""

    name: str
    kind: str
    value: float
    half: float
    last: bool
    what: str


def standing_data(rows: Sequence[Mapping[str, Any]], score: str) -> list[Standing]:
    """Rows that have a score, in their order; accuracies in per cent.

    >>> rows = [{"method": "maml", "kind": "trained", "accuracy": 0.5, "ci95": 0.1, "fresh": True}]
    >>> standing_data(rows, "accuracy")[0]["value"]
    50.0
    """
    times = 100.0 if score == "accuracy" else 1.0
    return [
        {
            "name": str(row.get("method", "")),
            "kind": str(row.get("kind", "")),
            "value": times * float(row[score]),
            "half": times * float(row.get("ci95") or 0.0),
            "last": bool(row.get("fresh")),
            "what": "accuracy, %" if score == "accuracy" else score,
        }
        for row in rows
        if isinstance(row, Mapping) and row.get(score) is not None
    ]


def standing_figure(data: Sequence[Standing]) -> Figure:
    """Draws :func:`standing_data`: a line for each row, the best at the top."""
    figure, (axes,) = new_figure(1, 6.0, 1.1 + 0.3 * len(data))
    for place, row in enumerate(data):
        _, colour = KINDS.get(row["kind"], ("", COLOURS[3]))
        inside = colour if row["last"] else "white"
        at, half = row["value"], row["half"]
        axes.errorbar(at, -place, xerr=half, color=colour, fmt="o", capsize=2, markerfacecolor=inside)
    axes.set_yticks([-place for place in range(len(data))], [row["name"] for row in data])
    label(axes, data[0]["what"])
    for kind, (words, colour) in KINDS.items():
        if any(row["kind"] == kind for row in data):
            axes.plot([], [], "o", color=colour, label=words)
    legend_below(figure, axes)
    return figure
