"""What a search finds, and with what means it is carried out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Ranked(NamedTuple):
    """A candidate with its scores by name, averaged over repeats."""

    candidate: Any
    scores: dict[str, float]


class Found(NamedTuple):
    """The outcome of a search.

    Attributes:
        method: its name.
        ranked: candidates, the best first (``random``: as they were drawn); pruning leaves a single one.
        reliability: how much of it is signal, as plain data (see the documentation).
        rounds: of pruning: what was removed in every round, and how clear it was, as plain data.
        seconds: of all measurements together, on one core; those kept from before do not count.
        measured: how many measurements decided.
    """

    method: str
    ranked: list[Ranked]
    reliability: dict[str, Any]
    rounds: list[dict[str, Any]]
    seconds: float
    measured: int


class Means(NamedTuple):
    """How a search is carried out; none of it changes what is found.

    Attributes:
        workers: processes of one thread; as many as there are cores if omitted.
        keep: a file for finished measurements.
        say: told a line now and then.
        ranks: processes that all carry out the same search, see :class:`~innerloop.search.pool.Bench`.
    """

    workers: int | None = None
    keep: Path | None = None
    say: Callable[[str], None] | None = None
    ranks: int = 1
