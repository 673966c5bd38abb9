"""Pictures of a search and of an advice: races, predictions by scores, and how methods stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypedDict

from innerloop.report.plots.panels import legend_below
from innerloop.report.plots.style import COLOURS, INK, TEXT, dash, label, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = {"score": ("from the score", COLOURS[0]), "random": ("random, of the same size", COLOURS[1])}


class CandidateCurve(TypedDict):
    """A candidate: where it comes from, and its accuracy with half its interval after this many steps."""

    name: str
    kind: str
    steps: list[int]
    accuracy: list[float]
    half: list[float]
    chosen: bool


class Bar(TypedDict):
    """A number with its interval, by name; ``second`` is the same among the better half."""

    name: str
    value: float
    low: float
    high: float
    second: tuple[float, float, float]


def race_data(shortlist: Sequence[Mapping[str, Any]]) -> list[CandidateCurve]:
    """Every candidate's accuracy rung by rung, in percent; those that diverged at once are left out."""
    racers: list[CandidateCurve] = []
    for entry in shortlist:
        rungs = [rung for rung in entry.get("rungs", []) if rung.get("accuracy") is not None]
        if not rungs:
            continue
        racers.append(
            {
                "name": str(entry.get("name", "")),
                "kind": str(entry.get("from", "")),
                "steps": [int(rung["steps"]) for rung in rungs],
                "accuracy": [100 * float(rung["accuracy"]) for rung in rungs],
                "half": [100 * float(rung.get("ci95") or 0.0) for rung in rungs],
                "chosen": bool(entry.get("chosen")),
            }
        )
    return racers


def race_figure(data: Sequence[CandidateCurve]) -> Figure:
    """Draws :func:`race_data`: a line each, the chosen one thick, with its name at its end."""
    # rungs stand side by side, since each is twice as long as the one before
    figure, (axes,) = new_figure(width=6.0, height=3.8)
    named: set[str] = set()
    rungs = sorted({steps for racer in data for steps in racer["steps"]})
    for racer in data:
        words, tint = KINDS.get(racer["kind"], ("", INK))
        many = len(racer["steps"]) > 1
        axes.errorbar(
            [rungs.index(steps) for steps in racer["steps"]],
            racer["accuracy"],
            yerr=racer["half"],
            color=tint,
            linewidth=2.4 if racer["chosen"] else 1.1,
            linestyle=dash(0 if racer["kind"] == "score" else len(COLOURS)),
            marker="o" if racer["kind"] == "score" else "s",
            markersize=4,
            elinewidth=0.8,
            alpha=1.0 if many else 0.6,
            label=None if words in named else words,
        )
        named.add(words)
    for racer, height in zip(data, _apart(data), strict=True):
        place = (rungs.index(racer["steps"][-1]), height)
        axes.annotate(
            racer["name"],
            place,
            (7, 0),
            textcoords="offset points",
            fontsize=TEXT - 1.5,
            color=INK,
            va="center",
        )
    axes.set_xticks(range(len(rungs)), [str(steps) for steps in rungs])
    axes.set_xlim(-0.3, len(rungs) - 0.4)
    label(axes, "meta-steps of training", "accuracy on validation tasks, %")
    legend_below(figure, axes)
    return figure


def _apart(data: Sequence[CandidateCurve]) -> list[float]:
    """Where names are written: beside the end of their line, but not one over another."""
    ends = [racer["accuracy"][-1] for racer in data]
    every = [value for racer in data for value in racer["accuracy"]]
    gap = 0.045 * max(max(every) - min(every) + 4 * max(max(r["half"]) for r in data), 1e-9)
    heights = list(ends)
    for rung in {racer["steps"][-1] for racer in data}:
        here = sorted((i for i, r in enumerate(data) if r["steps"][-1] == rung), key=ends.__getitem__)
        for below, above in pairwise(here):
            heights[above] = max(ends[above], heights[below] + gap)
    return heights


def prediction_data(table: Sequence[Mapping[str, Any]], key: str = "spearman") -> list[Bar]:
    """A measure of agreement for every score, in the order of the table."""

    def three(row: Mapping[str, Any]) -> tuple[float, float, float]:
        """The value in a row, and the ends of its interval."""
        agreement = row[key]
        return float(agreement["value"]), float(agreement["low"]), float(agreement["high"])

    bars: list[Bar] = []
    for row in table:
        value, low, high = three(row)
        second = three(row["better_half"])
        bars.append({"name": str(row["score"]), "value": value, "low": low, "high": high, "second": second})
    return bars


def prediction_figure(data: Sequence[Bar], words: str = "Spearman's ρ with accuracy") -> Figure:
    """Draws :func:`prediction_data`: a row for every score, among all candidates and the better half."""
    figure, (axes,) = new_figure(width=6.0, height=1.1 + 0.28 * len(data))
    rows = range(len(data))
    for shift, tint, marker, name in (
        (0.13, COLOURS[0], "o", "all candidates"),
        (-0.13, COLOURS[1], "s", "the better half"),
    ):
        intervals = [bar["second"] if shift < 0 else (bar["value"], bar["low"], bar["high"]) for bar in data]
        axes.errorbar(
            [value for value, _, _ in intervals],
            [len(data) - 1 - row + shift for row in rows],
            xerr=[
                [max(0.0, value - low) for value, low, _ in intervals],
                [max(0.0, high - value) for value, _, high in intervals],
            ],
            fmt=marker,
            color=tint,
            markersize=4,
            elinewidth=1.2,
            label=name,
        )
    axes.axvline(0.0, color=INK, linewidth=0.8, alpha=0.5)
    axes.set_yticks([len(data) - 1 - row for row in rows], [bar["name"] for bar in data])
    axes.grid(axis="y", visible=False)
    label(axes, f"{words}, with 95 % bootstrap intervals")
    legend_below(figure, axes)
    return figure


GROUPS = {
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
    """Rows that have a score, in their order; accuracies in per cent."""
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
        _, colour = GROUPS.get(row["kind"], ("", COLOURS[3]))
        inside = colour if row["last"] else "white"
        at, half = row["value"], row["half"]
        axes.errorbar(at, -place, xerr=half, color=colour, fmt="o", capsize=2, markerfacecolor=inside)
    axes.set_yticks([-place for place in range(len(data))], [row["name"] for row in data])
    label(axes, data[0]["what"])
    for kind, (words, colour) in GROUPS.items():
        if any(row["kind"] == kind for row in data):
            axes.plot([], [], "o", color=colour, label=words)
    legend_below(figure, axes)
    return figure
