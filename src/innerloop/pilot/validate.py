"""Does a score predict? Random candidates are scored, trained briefly and judged on the same tasks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from innerloop.core.errors import UserError
from innerloop.pilot.agreement import agreement, better_half, split_half
from innerloop.pilot.budget import CAUTION, affordable, least_seconds, mean_costs, too_small
from innerloop.pilot.describe import candidate_record, protocol_of
from innerloop.pilot.dividing import carried_out
from innerloop.pilot.keep import Sitting, decided
from innerloop.pilot.problem import Problem
from innerloop.pilot.settings import SUMS, Validate
from innerloop.pilot.trials import Trial, timed
from innerloop.search.reliability import mean_tau
from innerloop.search.scores.ranks import rank_sums
from innerloop.search.scores.table import SCORES
from innerloop.search.scoring import Scores, score_candidates
from innerloop.search.shortlist import random_pool

TIMED = 4
"""Candidates whose costs are measured."""


def validate(problem: Problem, settings: Validate, sitting: Sitting) -> dict[str, Any]:
    """Scores and trains random candidates, and compares every score with the accuracy.

    Args:
        problem: what is searched.
        settings: how many candidates, and how long.
        sitting: where it is kept.

    Returns:
        ``table`` (a row for every score, the most telling first), ``candidates``, ``reliability``,
        ``protocol``.
    """
    cells = random_pool(problem.space, min(settings.cells, problem.space.total), problem.seed)
    scores = score_candidates(
        problem.space,
        cells,
        list(SCORES),
        problem.draws,
        settings.repeats,
        workers=sitting.workers,
        keep=sitting.measured,
        say=sitting.say,
        ranks=sitting.ranks,
    )
    length = decided(sitting, "length", lambda: _decide(problem, settings, sitting, cells))
    sitting.say(
        f"each of {len(cells)} candidates: {length['steps']} steps, {length['episodes']} validation tasks"
    )
    trials = [
        Trial(
            problem.short_recipe_of(cell, length["steps"]),
            sitting.run / "candidates" / f"{place:03d}",
            "trained",
            length["steps"],
            length["episodes"],
        )
        for place, cell in enumerate(cells)
    ]
    with sitting.counting(len(trials), "candidates") as bar:
        done = itertools.count(1)
        found = carried_out(trials, sitting, lambda _: bar.update(next(done)))
    return {
        **compared(scores, found, chance=1 / problem.ways, seed=problem.seed),
        "candidates": [
            {**candidate_record(problem.space, cell), "scores": _of(scores, place), **_told(result)}
            for place, (cell, result) in enumerate(zip(cells, found, strict=True))
        ],
        "protocol": protocol_of(problem, length["steps"], length["episodes"]),
        "scoring_seconds": scores.seconds,
        "training_seconds": sum(result["seconds"] for result in found),
    }


def _decide(problem: Problem, settings: Validate, sitting: Sitting, cells: Sequence[Any]) -> dict[str, Any]:
    some = [problem.short_recipe_of(cell, 10) for cell in cells[:TIMED]]
    costs = mean_costs(timed(some, sitting.workers))
    left = settings.seconds - sitting.seconds
    share = CAUTION * left * min(sitting.hands, len(cells)) / len(cells)
    length = affordable(share, costs, settings.steps, settings.episodes)
    if length is None:
        needed = len(cells) * least_seconds(costs, settings.episodes) / sitting.hands / CAUTION
        raise too_small(
            settings.budget, sitting.seconds + needed, f"{len(cells)} candidates", ", or fewer cells="
        )
    return {**length._asdict(), "seconds_of": costs._asdict()}


def compared(
    scores: Scores, results: Sequence[Mapping[str, Any]], *, chance: float, seed: int = 0
) -> dict[str, Any]:
    """The table of scores against accuracies, and how far either can be trusted.

    Args:
        scores: of all candidates.
        results: of their trials, in the same order.
        chance: accuracy of guessing, which a candidate that diverged is given.
        seed: of the bootstrap.
    """
    lost = [place for place, result in enumerate(results) if result["mean"] is None]
    if len(lost) == len(results):
        raise UserError("training diverged for every candidate: lower outer.lr.")
    accuracy = [chance if result["mean"] is None else result["mean"] for result in results]
    better = better_half(accuracy)
    rows = []
    for name, values in columns(scores).items():
        half = agreement([values[i] for i in better], [accuracy[i] for i in better], seed)
        rows.append(
            {
                "score": name,
                "title": SCORES[name].title if name in SCORES else "rank sum of " + ", ".join(SUMS[name]),
                **_plain(agreement(values, accuracy, seed)),
                "better_half": _plain(half),
                "tau_between_repeats": _tau(scores, name),
            }
        )
    rows.sort(key=lambda row: -row["spearman"]["value"])
    whole = [result["scores"] for result in results if result["mean"] is not None]
    spread = max(accuracy) - min(accuracy)
    told = {"accuracy": split_half(whole), "diverged": len(lost), "spread": spread, "best": max(accuracy)}
    return {"table": rows, "reliability": told}


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


def _plain(found: Any) -> dict[str, Any]:
    made = {key: value._asdict() for key, value in found._asdict().items() if key != "candidates"}
    return {**made, "candidates": found.candidates}


def _of(scores: Scores, place: int) -> dict[str, float]:
    return {name: values[place] for name, values in scores.means().items()}


def _told(result: Mapping[str, Any]) -> dict[str, Any]:
    return {"accuracy": result["mean"], "ci95": result["ci95"], "seconds": result["seconds"]}
