"""What a search answers: how a race of networks ended and what its score was worth; or how scores predict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.choose.agreement import Agreement
from innerloop.choose.architectures.space import Space, size_of
from innerloop.choose.problem import SearchProblem
from innerloop.choose.race import Racer, Rungs, is_beyond_chance, lead
from innerloop.choose.settings import SpaceSettings
from innerloop.choose.trials import TrialResult
from innerloop.core.formatting import difference_text, duration, score_text
from innerloop.core.statistics import Interval, mean_interval
from innerloop.evaluation.protocol import kind_of


class Architecture(NamedTuple):
    """A candidate, described."""

    genotype: Any
    description: str
    parameters: int


def describe(space: Space[Any], candidate: Any) -> Architecture:
    """A candidate of a space."""
    settings = space.settings(candidate, "running")["settings"]
    genotype = settings.get("genotype", settings)
    return Architecture(genotype, space.describe(candidate), size_of(space, candidate).parameters)


def protocol_of(problem: SearchProblem, steps: int, episodes: int) -> dict[str, Any]:
    """What accuracies depend on, after so many steps and on so many tasks."""
    recipe = problem.recipe
    return {
        "data": recipe.data.name,
        "split": "validation",
        "ways": problem.ways,
        "shots": recipe.eval.shots or recipe.tasks.shots,
        "queries": problem.queries,
        "episodes": episodes,
        "steps": steps,
        "method": recipe.inner.method,
        "objective": recipe.outer.objective,
        "head": recipe.eval.head,
        "norm": recipe.model.norm,
        "kind": kind_of(recipe.model.norm),
        "train_seed": recipe.run.seed,
        "space": problem.space.name,
    }


class ShortlistEntry(NamedTuple):
    """A candidate of the shortlist."""

    racer: Racer
    architecture: Architecture
    scores: dict[str, float]
    chosen: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        last, fresh = self.racer.last, self.racer.fresh
        return {
            "name": self.racer.name,
            "from": self.racer.entrant.field,
            **self.architecture._asdict(),
            "scores": self.scores,
            "accuracy": last.mean,
            "ci95": last.ci95,
            "rungs": [
                {"steps": r.steps, "accuracy": r.mean, "ci95": r.ci95, "seconds": r.seconds}
                for r in self.racer.rungs
            ],
            "fresh": None if fresh is None else {"accuracy": fresh.mean, "ci95": fresh.ci95},
            "chosen": self.chosen,
        }


class Ending(NamedTuple):
    """How a race ended: the chosen one of the last two, and their difference on fresh tasks."""

    chosen: Racer
    difference: Interval | None
    decided: bool
    sentence: str


def ending_of(first: Racer, second: Racer) -> Ending:
    """Chooses between the score's last candidate and the random one, which were judged on fresh tasks."""
    ours, theirs = first.fresh, second.fresh
    assert ours is not None
    assert theirs is not None
    gap = lead(ours.scores, theirs.scores)
    ahead = gap.mean >= 0 if gap else ours.mean is not None
    chosen, other = (first, second) if ahead else (second, first)
    result = ours if ahead else theirs
    decided = is_beyond_chance(gap and gap._replace(mean=abs(gap.mean)))
    said = score_text("accuracy", result.mean, result.ci95)
    if gap is None:
        behind = f"{other.name} diverged"
    else:
        behind = f"{difference_text('accuracy', abs(gap.mean), gap.ci95)} against {other.name}"
        behind += "" if decided else ", which these tasks cannot tell from none"
    sentence = f"{chosen.name} is chosen: {said} on {result.episodes} fresh validation tasks, {behind}."
    return Ending(chosen, gap, decided, sentence)


def worth_of(racers: Sequence[Racer], end: Ending, scoring: float, k: int) -> dict[str, Any]:
    """What the score was worth: the best by the score against the best of random ones, at what cost.

    ``scoring`` is the seconds of scoring on one core.
    """
    ours, theirs = ([r for r in racers if r.entrant.field == field] for field in ("score", "random"))
    firsts = [(a.rungs[0].mean, b.rungs[0].mean) for a, b in zip(ours, theirs, strict=False)]
    pairs = [a - b for a, b in firsts if a is not None and b is not None]
    field = mean_interval(pairs) if len(pairs) > 1 else None
    gap = end.difference
    score, random = (
        sum(result.seconds for racer in some for result in racer.rungs) for some in (ours, theirs)
    )
    score += scoring
    ours_took, alone, theirs_took = map(duration, (score, scoring, random))
    return {
        "difference": gap.mean if gap else None,
        "ci95": gap.ci95 if gap else None,
        "decided": end.decided,
        "field_difference": field.mean if field else None,
        "field_ci95": field.ci95 if field else None,
        "random_candidates": len(theirs),
        "seconds": {"score": score, "random": random, "scoring": scoring},
        "sentence": _worth_sentence(gap, end.decided, field, k, len(theirs)),
        "cost": (
            f"On one core, the score's candidates took {ours_took} (scoring alone {alone}), "
            f"the random ones {theirs_took}."
        ),
    }


def _worth_sentence(gap: Interval | None, decided: bool, field: Interval | None, k: int, others: int) -> str:
    if gap is None:
        return "One of the last two diverged, so there is no difference to tell."
    said = difference_text("accuracy", gap.mean, gap.ci95)
    beyond = "beyond chance on these tasks" if decided else "no more than chance on these tasks"
    text = f"The best of {k} by the score against the best of {others} random ones: {said}, {beyond}."
    if field is not None:
        mean = difference_text("accuracy", field.mean, field.ci95)
        text += f" Over pairs of equal size after the first rung: {mean} (interval over {field.n} pairs)."
    return text


class NetworkRace(NamedTuple):
    """A race of networks that has come to its end."""

    sentence: str
    shortlist: list[ShortlistEntry]
    worth: dict[str, Any]
    reliability: dict[str, Any]
    rungs: Rungs
    protocol: dict[str, Any]
    recipe: Path
    pool: int
    k: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        fields, steps, episodes = self.rungs
        return {
            "sentence": self.sentence,
            "shortlist": [one.as_dict() for one in self.shortlist],
            "chosen": next(one for one in self.shortlist if one.chosen).as_dict(),
            "worth": self.worth,
            "reliability": self.reliability,
            "rungs": {"steps": steps, "fields": fields, "episodes": episodes},
            "protocol": self.protocol,
            "recipe": str(self.recipe),
            "command": f"innerloop train {self.recipe}",
            "pool": self.pool,
            "k": self.k,
        }


class ScorePrediction(NamedTuple):
    """How well a score predicts the accuracy, of all candidates and of the more accurate half."""

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
            **self.whole.as_dict(),
            "better_half": self.better_half.as_dict(),
            "tau_between_repeats": self.tau_between_repeats,
        }


class Accuracies(NamedTuple):
    """How far accuracies can be trusted."""

    accuracy: float
    diverged: int
    spread: float
    best: float


class ScoredCandidate(NamedTuple):
    """A candidate, its scores, and what it reached."""

    architecture: Architecture
    scores: dict[str, float]
    result: TrialResult

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        reached = {"accuracy": self.result.mean, "ci95": self.result.ci95, "seconds": self.result.seconds}
        return {**self.architecture._asdict(), "scores": self.scores, **reached}


class ScoreValidation(NamedTuple):
    """Every score against the accuracies, the most telling first, and how far these can be trusted."""

    table: list[ScorePrediction]
    reliability: Accuracies
    candidates: list[ScoredCandidate]
    protocol: dict[str, Any]
    scoring_seconds: float
    training_seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            **self._asdict(),
            "table": [row.as_dict() for row in self.table],
            "reliability": self.reliability._asdict(),
            "candidates": [one.as_dict() for one in self.candidates],
        }


class SearchResult(NamedTuple):
    """A search or a validation that has come to its end."""

    outcome: NetworkRace | ScoreValidation
    notes: list[str]
    source: str
    settings: SpaceSettings
    seconds: float
    workers: int
    run: Path
    report: Path | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as ``innerloop search --json`` prints them."""
        budget = self.settings.seconds
        return {
            **self.outcome.as_dict(),
            "validate": isinstance(self.outcome, ScoreValidation),
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
