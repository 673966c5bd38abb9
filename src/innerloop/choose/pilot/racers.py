"""Candidates in a race, and what is reported of each at its end."""

from __future__ import annotations

from typing import Any, NamedTuple

from innerloop.choose.pilot.describe import Described
from innerloop.choose.pilot.trials import Reached


class Racer(NamedTuple):
    """A candidate in a race: its name, its field, and the results of its rungs so far."""

    name: str
    field: str
    candidate: Any
    results: list[Reached]

    @property
    def place(self) -> float:
        """To sort by: how far it came, then its accuracy; one that diverged stands last."""
        mean = self.results[-1].mean if self.results else None
        return -1.0 if mean is None else float(mean)


class Listed(NamedTuple):
    """A candidate of the shortlist."""

    name: str
    field: str
    described: Described
    scores: dict[str, float]
    rungs: list[Reached]
    fresh: Reached | None
    chosen: bool

    @property
    def order(self) -> tuple[int, bool, float]:
        """To sort by: those that came furthest first, then the most accurate."""
        mean = self.rungs[-1].mean
        return -len(self.rungs), mean is None, -(mean or 0.0)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        last, fresh = self.rungs[-1], self.fresh
        return {
            "name": self.name,
            "from": self.field,
            **self.described._asdict(),
            "scores": self.scores,
            "accuracy": last.mean,
            "ci95": last.ci95,
            "rungs": [
                {"steps": r.steps, "accuracy": r.mean, "ci95": r.ci95, "seconds": r.seconds}
                for r in self.rungs
            ],
            "fresh": None if fresh is None else {"accuracy": fresh.mean, "ci95": fresh.ci95},
            "chosen": self.chosen,
        }
