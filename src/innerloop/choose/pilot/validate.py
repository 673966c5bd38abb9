"""Does a score predict? Random candidates are scored, trained briefly and judged on the same tasks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from innerloop.choose.architectures.reliability import mean_tau
from innerloop.choose.architectures.scoring import Scores
from innerloop.choose.architectures.shortlist import random_pool
from innerloop.choose.pilot.agreement import agreement, better_half, split_half
from innerloop.choose.pilot.budget import CAUTION, Length, affordable, least_seconds, mean_costs, too_small
from innerloop.choose.pilot.describe import described, protocol_of
from innerloop.choose.pilot.dividing import carried_out
from innerloop.choose.pilot.keep import Sitting, decided
from innerloop.choose.pilot.problem import Problem
from innerloop.choose.pilot.results import Accuracies, Compared, Row, Tried, Validation
from innerloop.choose.pilot.settings import SUMS, Validate
from innerloop.choose.pilot.shortlisting import scored
from innerloop.choose.pilot.trials import MOST_TIMED, Reached, Trial, timed
from innerloop.choose.scores.ranks import rank_sums
from innerloop.choose.scores.table import SCORES
from innerloop.core.errors import UserError

TIMED = 4
"""Candidates whose costs are measured."""


def validate(problem: Problem, settings: Validate, sitting: Sitting) -> Validation:
    """Scores and trains random candidates, and compares every score with the accuracy."""
    cells = random_pool(problem.space, min(settings.cells, problem.space.total), problem.seed)
    scores = scored(problem, sitting, cells, list(SCORES), settings.repeats)
    kept = decided(sitting, "length", lambda: _decide(problem, settings, sitting, cells))
    length = Length(kept["steps"], kept["episodes"])
    sitting.say(f"each of {len(cells)} candidates: {length.steps} steps, {length.episodes} validation tasks")
    trials = [
        Trial(
            problem.short_recipe_of(cell, length.steps),
            sitting.run / "candidates" / f"{place:03d}",
            "trained",
            length.steps,
            length.episodes,
        )
        for place, cell in enumerate(cells)
    ]
    with sitting.counting(len(trials), "candidates") as bar:
        done = itertools.count(1)
        results = carried_out(trials, sitting, lambda _: bar.update(next(done)))
    return Validation(
        compared=compared(scores, results, chance=1 / problem.ways, seed=problem.seed),
        candidates=[
            Tried(described(problem.space, cell), _of(scores, place), result)
            for place, (cell, result) in enumerate(zip(cells, results, strict=True))
        ],
        protocol=protocol_of(problem, length.steps, length.episodes),
        scoring_seconds=scores.seconds,
        training_seconds=sum(result.seconds for result in results),
    )


def _decide(problem: Problem, settings: Validate, sitting: Sitting, cells: Sequence[Any]) -> dict[str, Any]:
    some = [problem.short_recipe_of(cell, MOST_TIMED) for cell in cells[:TIMED]]
    costs = mean_costs([*timed(some, sitting.workers).values()])
    left = settings.seconds - sitting.seconds
    share = CAUTION * left * min(sitting.hands, len(cells)) / len(cells)
    length = affordable(share, costs, settings.steps, settings.episodes)
    if length is None:
        needed = len(cells) * least_seconds(costs, settings.episodes) / sitting.hands / CAUTION
        raise too_small(
            settings.budget, sitting.seconds + needed, f"{len(cells)} candidates", ", or fewer cells="
        )
    return {**length._asdict(), "seconds_of": costs._asdict()}


def compared(scores: Scores, results: Sequence[Reached], *, chance: float, seed: int = 0) -> Compared:
    """The table of scores against accuracies, and how far either can be trusted."""
    lost = sum(result.mean is None for result in results)
    if lost == len(results):
        raise UserError("training diverged for every candidate: lower outer.lr.")
    accuracy = [chance if result.mean is None else result.mean for result in results]
    better = better_half(accuracy)
    rows = [
        Row(
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
    return Compared(rows, Accuracies(split_half(finite), lost, spread, max(accuracy)))


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


def _of(scores: Scores, place: int) -> dict[str, float]:
    return {name: values[place] for name, values in scores.means().items()}
