"""Does a score predict? Random candidates are scored, trained briefly and judged on the same tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innerloop.choose.architectures.ranking import Scores, mean_tau, random_pool
from innerloop.choose.problem import Architecture, SearchProblem
from innerloop.choose.race import (
    DIVERGED,
    RacePlan,
    Racer,
    Rungs,
    budget_error,
    in_steps,
    mean_costs,
    plan_rungs,
    run_race,
    shortest_race,
)
from innerloop.choose.scores.score_table import SCORES, rank_sums
from innerloop.choose.session import Session
from innerloop.choose.settings import SUMS, ValidateSettings
from innerloop.choose.shortlist import TIMED, score_pool
from innerloop.choose.trials import MOST_TIMED, Trial, TrialResult, decide_once, measure_recipes, shorten

RESAMPLES = 2000
"""Bootstrap samples of the candidates."""

_AT_ONCE = 2_000_000  # pairs of candidates, to bound memory

Array = NDArray[np.float64]


class BootstrapEstimate(NamedTuple):
    """A number with its 95 % bootstrap interval (percentiles over resampled candidates)."""

    value: float
    low: float
    high: float


class Agreement(NamedTuple):
    """What a score says about an accuracy."""

    spearman: BootstrapEstimate
    kendall: BootstrapEstimate
    ndcg: BootstrapEstimate
    regret: BootstrapEstimate
    candidates: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            key: v._asdict() if isinstance(v, BootstrapEstimate) else v for key, v in self._asdict().items()
        }


def agreement(
    score: Sequence[float], accuracy: Sequence[float], seed: int = 0, resamples: int = RESAMPLES
) -> Agreement:
    """Agreement of a score (higher is better, nan last) with an accuracy; intervals are over candidates."""
    n = len(score)
    drawn = np.random.default_rng(seed).integers(0, n, (resamples, n))
    levels, reached = _levels(score), np.asarray(accuracy, dtype=np.float64)
    values = _rank_statistics(levels, reached, np.arange(n)[None])
    pieces = np.array_split(drawn, -(-drawn.size * n // _AT_ONCE))
    again = zip(*(_rank_statistics(levels, reached, piece) for piece in pieces), strict=True)
    made = (_estimate(float(v[0]), np.concatenate(b)) for v, b in zip(values, again, strict=True))
    spearman, kendall, ndcg, regret = made
    return Agreement(spearman, kendall, ndcg, regret, n)


def better_half(accuracy: Sequence[float]) -> list[int]:
    """Places of the more accurate half (the larger one, where there is an odd number)."""
    order = np.argsort(-np.asarray(accuracy, dtype=np.float64), kind="stable")
    return sorted(int(i) for i in order[: -(-len(order) // 2)])


def split_half(scores: Sequence[Sequence[float]]) -> float:
    """How repeatable the order is on other tasks: r of even against odd, 2r/(1 + r) (Spearman, Brown)."""
    table = np.asarray(scores, dtype=np.float64)
    halves = table[:, ::2].mean(1), table[:, 1::2].mean(1)
    r = float(_rank_statistics(_levels(halves[0]), halves[1], np.arange(len(table))[None])[0][0])
    return 2 * r / (1 + r) if r > 0 else r


def _levels(values: Sequence[float] | Array) -> Array:
    """Equal numbers for equal values, in their order; what is not a number is below all others."""
    array = np.asarray(values, dtype=np.float64)
    return np.unique(np.where(np.isnan(array), -np.inf, array), return_inverse=True)[1].astype(np.float64)


def _rank_statistics(levels: Array, accuracy: Array, drawn: NDArray[np.int64]) -> tuple[Array, ...]:
    """Spearman, Kendall, nDCG and regret of each row of candidates."""
    a, b = levels[drawn], accuracy[drawn]
    first, second = (np.sign(x[:, :, None] - x[:, None, :]) for x in (a, b))
    spearman = _correlation(first.sum(2), second.sum(2))
    kendall = _correlation(*(x.reshape(len(drawn), -1) for x in (first, second)))
    above, equal = (first < 0).sum(2), (first == 0).sum(2)
    best = b.max(1)
    top = above == 0
    regret = best - (b * top).sum(1) / top.sum(1)
    return spearman, kendall, _ndcg(b, above, equal), regret


def _correlation(x: Array, y: Array) -> Array:
    """From sums of products; 0 where one side is constant and so tells nothing."""
    both, first, second = ((a * b).sum(1) for a, b in ((x, y), (x, x), (y, y)))
    norm = np.sqrt(first * second)
    return np.divide(both, norm, out=np.zeros_like(both), where=norm > 0)


def _ndcg(accuracy: Array, above: NDArray[np.int64], equal: NDArray[np.int64]) -> Array:
    """Candidates of equal score share the discounts of their places."""
    low, high = accuracy.min(1, keepdims=True), accuracy.max(1, keepdims=True)
    gain = np.divide(accuracy - low, high - low, out=np.ones_like(accuracy), where=high > low)
    n = accuracy.shape[1]
    discounts = 1 / np.log2(np.arange(n) + 2.0)
    sums = np.concatenate([[0.0], np.cumsum(discounts)])
    shared = (sums[above + equal] - sums[above]) / equal
    ideal = (-np.sort(-gain, axis=1) * discounts).sum(1)
    total: Array = (gain * shared).sum(1) / ideal
    return total


def _estimate(value: float, resampled: Array) -> BootstrapEstimate:
    low, high = np.percentile(resampled, [2.5, 97.5])
    return BootstrapEstimate(value, float(low), float(high))


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


def validate_scores(problem: SearchProblem, settings: ValidateSettings, session: Session) -> ScoreValidation:
    """Scores and trains random candidates, and compares every score with the accuracy."""
    cells = random_pool(problem.space, min(settings.cells, problem.space.total), problem.seed)
    scores = score_pool(problem, session, cells, list(SCORES), settings.repeats)
    racers = [Racer(problem.entrant(cell, f"{place:03d}"), []) for place, cell in enumerate(cells)]
    plan = decide_once(session.run, "length", lambda: _decide(problem, settings, session, racers))
    steps, episodes = plan["steps"], plan["episodes"]
    session.say(f"each of {len(cells)} candidates: {steps} steps, {episodes} validation tasks")

    def trial(racer: Racer, _: int) -> Trial:
        recipe = shorten(racer.entrant.recipe, steps, problem.queries)
        return Trial(recipe, session.run / "candidates" / racer.name, "trained", steps, episodes)

    one_rung = RacePlan(
        Rungs([[len(racers)]], [steps], episodes),
        trial,
        better=1,
        unit="candidates",
        work=[1],
        line=lambda _, best, ran: f"{ran} candidates were trained, the best is {best.name}",
        diverged=DIVERGED,
    )
    run_race(racers, one_rung, session)
    results = [racer.last for racer in racers]
    table, reliability = compare_scores(scores, results, chance=1 / problem.ways, seed=problem.seed)
    return ScoreValidation(
        table,
        reliability,
        candidates=[
            ScoredCandidate(problem.describe(cell), scores.of(place), results[place])
            for place, cell in enumerate(cells)
        ],
        protocol=problem.protocol(steps, episodes),
        scoring_seconds=scores.seconds,
        training_seconds=sum(result.seconds for result in results),
    )


def _decide(
    problem: SearchProblem, settings: ValidateSettings, session: Session, racers: Sequence[Racer]
) -> dict[str, Any]:
    """One rung of all candidates, from measured costs."""
    some = [shorten(racer.entrant.recipe, MOST_TIMED, problem.queries) for racer in racers[:TIMED]]
    costs = [mean_costs([*measure_recipes(some, session.pool).values()])]
    fields, left = [[len(racers)]], settings.seconds - session.seconds
    forced, episodes = bool(settings.steps), settings.episodes
    rungs = plan_rungs(fields, costs, session.workers, left, episodes=episodes, fresh=0, forced=forced)
    if rungs is None:
        needed = shortest_race(fields, costs, session.workers, settings.episodes, fresh=0)
        what = f"{len(racers)} candidates"
        raise budget_error(settings.budget, session.seconds + needed, what, ", or fewer cells=")
    steps = settings.steps or int(in_steps(rungs, costs[0].step).lengths[0])
    return {"steps": steps, "episodes": rungs.episodes, "seconds_of": costs[0]._asdict()}


def compare_scores(
    scores: Scores, results: Sequence[TrialResult], *, chance: float, seed: int = 0
) -> tuple[list[ScorePrediction], Accuracies]:
    """The table of scores against accuracies, and how far either can be trusted."""
    lost = sum(result.mean is None for result in results)
    accuracy = [chance if result.mean is None else result.mean for result in results]
    better = better_half(accuracy)
    rows = [
        ScorePrediction(
            score=name,
            title=SCORES[name].title if name in SCORES else "rank sum of " + ", ".join(SUMS[name]),
            whole=agreement(values, accuracy, seed),
            better_half=agreement([values[i] for i in better], [accuracy[i] for i in better], seed),
            tau_between_repeats=_tau(scores, name),
        )
        for name, values in columns(scores).items()
    ]
    rows.sort(key=lambda row: -row.whole.spearman.value)
    finite = [result.scores for result in results if result.mean is not None]
    spread = max(accuracy) - min(accuracy)
    return rows, Accuracies(split_half(finite), lost, spread, max(accuracy))


def columns(scores: Scores) -> dict[str, list[float]]:
    """Every score and every named sum of ranks, so that higher is better."""
    means = scores.means()
    sign = {name: 1.0 if SCORES[name].better == "higher" else -1.0 for name in means}
    made = {name: [sign[name] * v for v in values] for name, values in means.items()}
    for name, parts in SUMS.items():
        if all(part in means for part in parts):
            made[name] = [-total for total in rank_sums({part: means[part] for part in parts})]
    return made


def _tau(scores: Scores, name: str) -> float | None:
    """Agreement between repeats, whose columns are single draws."""
    names = SUMS.get(name, (name,))
    repeats = next(iter(scores.values.values())).shape[1]
    sums = [rank_sums({n: scores.values[n][:, r].tolist() for n in names}) for r in range(repeats)]
    return mean_tau(sums)
