"""What the page says about the inner learning rate: how ``auto`` came to it, or how a user's own compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from innerloop.report.views import Explained, Table
from innerloop.report.words import number

ROWS = (
    ("alpha", "inner rate"),
    ("low", "lower end"),
    ("high", "upper end"),
    ("kind", "what the ends are"),
    ("factor", "stated uncertainty, a factor up and down"),
    ("convention", "convention"),
    ("tasks", "tasks looked at"),
    ("sweep_steps", "steps of the sweep"),
    ("sweep_episodes", "validation tasks of each rate"),
    ("sweep_seconds", "seconds of the sweep"),
    ("sweep_time_share", "the sweep's share of the run's time, as expected"),
)


def rate_view(record: Any) -> Explained | None:
    """Sentences, rows and the sweep's table; None if the manifest says nothing about a rate.

    >>> rate_view({"setting": 0.5, "low": 0.1, "high": 0.2, "warning": None}).sentences[0]
    'inner.lr=0.5 was set by hand; the estimated bracket is 0.1 to 0.2.'
    """
    if not isinstance(record, Mapping) or "low" not in record:
        return None
    if record.get("setting") != "auto":
        own, low, high = (number(record.get(key), 3) for key in ("setting", "low", "high"))
        sentence = f"inner.lr={own} was set by hand; the estimated bracket is {low} to {high}."
        warning = str(record.get("warning") or "")
        return Explained([sentence, *([warning] if warning else [])], [], [])
    reasons = record.get("reasons")
    sentences = ["inner.lr=auto, estimated before the first step."]
    sentences += [f"{text[:1].upper()}{text[1:]}." for text in (reasons if isinstance(reasons, list) else [])]
    rows = [(name, number(record[key])) for key, name in ROWS if record.get(key) is not None]
    interval = record.get("interval")
    if isinstance(interval, list):
        rows.insert(1, ("sampling error alone, 95 %", " to ".join(number(end, 3) for end in interval)))
    return Explained(sentences, rows, _sweep(record.get("sweep")))


def _sweep(sweep: Any) -> list[Table]:
    tried = [row for row in sweep or [] if isinstance(row, Mapping)] if isinstance(sweep, list) else []
    if not tried:
        return []
    score = str(tried[0].get("of") or "score")
    begun = any(row.get("before") is not None for row in tried)  # runs of older versions did not look
    cells = [
        [
            number(row.get("rate")),
            *([_score(row.get("before"))] if begun else []),
            _score(row.get("score")),
        ]
        for row in tried
    ]
    head = ["rate", *([f"{score} before training"] if begun else []), score]
    return [Table("Sweep on validation tasks", head, cells)]


def _score(value: Any) -> str:
    return "diverged" if value is None else number(value)
