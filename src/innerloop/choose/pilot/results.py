"""What a search answers: how a race ended, or how well every score predicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from innerloop.choose.pilot.agreement import Agreement
from innerloop.choose.pilot.describe import Described, PilotProtocol
from innerloop.choose.pilot.racers import Listed
from innerloop.choose.pilot.rungs import Rungs
from innerloop.choose.pilot.settings import Common
from innerloop.choose.pilot.trials import Reached
from innerloop.choose.pilot.worth import Worth


class Race(NamedTuple):
    """How a race ended."""

    sentence: str
    shortlist: list[Listed]
    worth: Worth
    reliability: dict[str, Any]
    rungs: Rungs
    protocol: PilotProtocol
    score: str
    recipe: Path
    pool: int
    k: int

    @property
    def chosen(self) -> Listed:
        """The chosen candidate."""
        return next(one for one in self.shortlist if one.chosen)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "sentence": self.sentence,
            "shortlist": [one.as_dict() for one in self.shortlist],
            "chosen": self.chosen.as_dict(),
            "worth": self.worth.as_dict(),
            "reliability": self.reliability,
            "rungs": self.rungs._asdict(),
            "protocol": {**self.protocol._asdict(), "score": self.score},
            "recipe": str(self.recipe),
            "command": f"innerloop train {self.recipe}",
            "pool": self.pool,
            "k": self.k,
        }


class Row(NamedTuple):
    """A score beside the accuracy."""

    score: str
    title: str
    whole: Agreement
    better_half: Agreement
    tau_between_repeats: float | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "score": self.score,
            "title": self.title,
            **_plain(self.whole),
            "better_half": _plain(self.better_half),
            "tau_between_repeats": self.tau_between_repeats,
        }


class Accuracies(NamedTuple):
    """How far accuracies can be trusted."""

    accuracy: float
    diverged: int
    spread: float
    best: float


class Compared(NamedTuple):
    """Every score against the accuracies, the most telling first, and how far these can be trusted."""

    table: list[Row]
    reliability: Accuracies


class Tried(NamedTuple):
    """A candidate, its scores, and what it reached."""

    described: Described
    scores: dict[str, float]
    reached: Reached

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        told = {"accuracy": self.reached.mean, "ci95": self.reached.ci95, "seconds": self.reached.seconds}
        return {**self.described._asdict(), "scores": self.scores, **told}


class Validation(NamedTuple):
    """What a validation found."""

    compared: Compared
    candidates: list[Tried]
    protocol: PilotProtocol
    scoring_seconds: float
    training_seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "table": [row.as_dict() for row in self.compared.table],
            "reliability": self.compared.reliability._asdict(),
            "candidates": [one.as_dict() for one in self.candidates],
            "protocol": self.protocol._asdict(),
            "scoring_seconds": self.scoring_seconds,
            "training_seconds": self.training_seconds,
        }


class SearchResult(NamedTuple):
    """A search or a validation that has come to its end."""

    outcome: Race | Validation
    ranks: int
    notes: list[str]
    source: str
    settings: Common
    seconds: float
    workers: int
    run: Path
    report: Path | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as ``innerloop search --json`` prints them."""
        budget = self.settings.seconds
        return {
            **self.outcome.as_dict(),
            "validate": isinstance(self.outcome, Validation),
            "ranks": self.ranks,
            "notes": self.notes,
            "source": self.source,
            "budget": budget,
            "seconds": self.seconds,
            "over_budget": max(0.0, self.seconds - budget),
            "workers": self.workers,
            "settings": self.settings.model_dump(),
            "run": str(self.run),
            **({} if self.report is None else {"report": str(self.report)}),
        }


def _plain(whole: Agreement) -> dict[str, Any]:
    estimates = whole._asdict()
    candidates = estimates.pop("candidates")
    return {**{name: estimate._asdict() for name, estimate in estimates.items()}, "candidates": candidates}
