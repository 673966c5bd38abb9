"""What scores without training predict: validations of ``innerloop search --validate``, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from typing import Any

from innerloop.runs.manifest import now
from innerloop_studies.recorded.evaluations import titled
from innerloop_studies.recorded.files import keep, required, this_machine
from innerloop_studies.recorded.text import table

SETTINGS = ("episodes=200", "budget=40m")
PREDICTIONS: dict[str, Sequence[str]] = {
    "scores-cifar-fs": ("search", "cifar-fs", "--validate", "steps=400", *SETTINGS),
    "scores-omniglot": ("search", "omniglot", "--validate", "steps=250", *SETTINGS),
    "scores-cifar-fs-tasks": (
        *("search", "cifar-fs", "--validate", "tasks.family=few-shot", "steps=165"),
        *SETTINGS,
    ),
}
"""What is typed after ``innerloop``, by the name of the file."""
MODULE = "innerloop.choose.validation"
"""Whose source these numbers depend on."""
MINUS = str.maketrans("-", "−")


def adopt_prediction(name: str, result: Mapping[str, Any], made_by: Mapping[str, str | None]) -> None:
    """Keeps what a validation printed: its table, and what its candidates reached."""
    reached = [one["accuracy"] for one in result["candidates"]]
    known = {key: result[key] for key in ("table", "reliability", "protocol", "training_seconds", "seconds")}
    content = {"name": name, "command": f"innerloop {' '.join(PREDICTIONS[name])}", **known}
    content |= {"accuracies": reached, "machine": this_machine()}
    keep("predictions", name, {**content, "made_by": made_by, "ended": now()})


def predictions(*names: str) -> str:
    """A line for each score, those with the highest mean ρ first.

    Pairs of numbers are in the order of names.
    """
    kept = {title: rows_of(name) for name, title in titled(names)}
    scores = [score for score in next(iter(kept.values())) if all(score in rows for rows in kept.values())]
    scores.sort(key=lambda score: -sum(rows[score]["spearman"]["value"] for rows in kept.values()))
    lines = []
    for score in scores:
        rows = [some[score] for some in kept.values()]
        halves = [row["better_half"]["spearman"]["value"] for row in rows]
        cells = [f"`{score}`", *(bounded(row["spearman"]) for row in rows), pair(halves)]
        cells += [pair([row["ndcg"]["value"] for row in rows])]
        cells += [pair([100 * row["regret"]["value"] for row in rows], digits=1)]
        lines.append([*cells, pair([row["tau_between_repeats"] for row in rows])])
    head = ("in the better half", "nDCG", "regret, points", "τ between repeats")
    return table(("score", *(f"ρ, {title}" for title in kept), *head), lines)


def rows_of(name: str) -> dict[str, dict[str, Any]]:
    """The table of a validation, by score."""
    return {row["score"]: row for row in required("predictions", name)["table"]}


def bounded(estimate: Mapping[str, float]) -> str:
    """An estimate with its interval.

    >>> bounded({"value": -0.021, "low": -0.33, "high": 0.29})
    '−0.02 [−0.33, 0.29]'
    """
    value, low, high = (f"{estimate[key]:.2f}".translate(MINUS) for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def pair(values: Sequence[float | None], digits: int = 2) -> str:
    """Numbers side by side.

    >>> pair([0.5, -0.212]), pair([1.0, None], digits=1)
    ('0.50; −0.21', '1.0; –')
    """
    return "; ".join("–" if one is None else f"{one:.{digits}f}".translate(MINUS) for one in values)


def accuracies_of(name: str) -> str:
    """What the candidates of a validation reached, for a line of text."""
    reached = [100 * one for one in required("predictions", name)["accuracies"]]
    return f"between {min(reached):.1f} and {max(reached):.1f} % (mean {sum(reached) / len(reached):.1f})"


def repeatable(name: str) -> str:
    """How far the order of accuracies would be repeated on other tasks: a correlation."""
    return f"{required('predictions', name)['reliability']['accuracy']:.2f}"


def beyond_chance(*names: str) -> str:
    """Which scores predict beyond chance: those whose interval of ρ lies above zero, for a line of text."""
    told = []
    for name, title in titled(names):
        good = [f"`{score}`" for score, row in rows_of(name).items() if row["spearman"]["low"] > 0]
        told.append(f"{', '.join(good) or 'none'} on {title}")
    return "; ".join(told)


def score_of(name: str, score: str, what: str) -> str:
    """One number of a validation, for a line of text."""
    estimate = rows_of(name)[score][what]
    return f"{100 * estimate['value']:.1f}" if what == "regret" else bounded(estimate)


def at_random(name: str, tried: str = "1") -> str:
    """By how many points the best of some cells picked at random is below the best of all, on average."""
    return f"{100 * shortfall(required('predictions', name)['accuracies'], int(tried)):.1f}"


def shortfall(accuracies: Sequence[float], tried: int) -> float:
    """By how much the best of some picked at random is below the best of all, on average.

    The one in place i of an ascending order is the best of those picked if all others lie below it.

    >>> shortfall([0.0, 1.0, 2.0], 1), round(shortfall([0.0, 1.0, 2.0], 2), 3), shortfall([1.0, 2.0], 2)
    (1.0, 0.333, 0.0)
    """
    ordered = sorted(accuracies)
    ways = comb(len(ordered), tried)
    mean = sum(value * comb(place, tried - 1) for place, value in enumerate(ordered)) / ways
    return ordered[-1] - mean
