"""What a search finds, and with what means it is carried out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.choose.architectures.stages import EdgeOperator


class RankedCandidate(NamedTuple):
    """A candidate with its scores by name, averaged over repeats."""

    candidate: Any
    scores: dict[str, float]


class ShortlistReliability(NamedTuple):
    """How far repeats agree on the order of candidates.

    Attributes:
        tau: Kendall's τ of the rank sums between single repeats; None with a single one.
        tau_by_score: likewise of every score.
        top: how many are kept.
        top_again: the share of them that another run would name again.
        top_chance: what that would be by chance.
        repeats: of each score.
        candidates: that were scored.
    """

    tau: float | None
    tau_by_score: dict[str, float | None]
    top: int
    top_again: float | None
    top_chance: float
    repeats: int
    candidates: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return self._asdict()


class EdgeDecision(NamedTuple):
    """What was removed from one edge, and how clear that was.

    Attributes:
        stage: in which that was decided.
        kind: of the cell.
        node: where the edge ends.
        removed: the operators that went.
        among: all that were compared.
        margin: importance of the first that stays minus that of the last that goes.
        tau: Kendall's τ of importance between repeats.
        again: the share of imagined other runs that remove the same.
        chance: what that would be by chance.
        repeats: of the operator that was measured most often.
    """

    stage: str
    kind: str
    node: int
    removed: list[str]
    among: list[str]
    margin: float
    tau: float | None
    again: float | None
    chance: float
    repeats: int


class PruningReliability(NamedTuple):
    """How clear the decisions of a pruning were: means of :attr:`edges`, which has every single one.

    Attributes:
        again: the share of imagined other runs that remove the same.
        chance: what that would be by chance.
        tau: Kendall's τ of importance between repeats.
        tau_condition: of the condition number alone.
        tau_regions: of the linear regions alone.
        edges: every decision.
    """

    again: float | None
    chance: float | None
    tau: float | None
    tau_condition: float | None
    tau_regions: float | None
    edges: list[EdgeDecision]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {**self._asdict(), "edges": [edge._asdict() for edge in self.edges]}


class Round(NamedTuple):
    """A round of pruning.

    Attributes:
        stage: its name.
        candidates: for removal.
        measured: how many measurements decided.
        removed: what went.
        again: the share of imagined other runs that remove the same, over edges.
        tau: Kendall's τ of importance between repeats, over edges.
        taus: of single changes, by name.
    """

    stage: str
    candidates: int
    measured: int
    removed: list[EdgeOperator]
    again: float | None
    tau: float | None
    taus: dict[str, float | None]


class SearchOutcome(NamedTuple):
    """The outcome of a search.

    Attributes:
        method: its name.
        ranked: candidates, the best first (``random``: as they were drawn); pruning leaves a single one.
        reliability: how much of it is signal; None for ``random``.
        rounds: of pruning: what was removed in every round, and how clear it was.
        seconds: of all measurements together, on one core; those kept from before do not count.
        measured: how many measurements decided.
    """

    method: str
    ranked: list[RankedCandidate]
    reliability: ShortlistReliability | PruningReliability | None
    rounds: list[Round]
    seconds: float
    measured: int


class Resources(NamedTuple):
    """How a search is carried out; none of it changes what is found."""

    workers: int | None = None
    keep: Path | None = None
    say: Callable[[str], None] | None = None
