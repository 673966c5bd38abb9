"""Does a score predict? Random candidates are scored, trained briefly and judged on the same tasks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from innerloop.choose.agreement import agreement, better_half, split_half
from innerloop.choose.architectures.ranking import Scores, mean_tau, random_pool
from innerloop.choose.problem import SearchProblem
from innerloop.choose.race import (
    Racer,
    in_steps,
    keep_race,
    mean_costs,
    plan_rungs,
    shortest_race,
    too_small,
)
from innerloop.choose.records import Session, decided
from innerloop.choose.scores.score_table import SCORES, rank_sums
from innerloop.choose.search_results import (
    Accuracies,
    ScoredCandidate,
    ScorePrediction,
    ScoreValidation,
    describe,
    protocol_of,
)
from innerloop.choose.settings import SUMS, ValidateSettings
from innerloop.choose.shortlist import TIMED, score_pool
from innerloop.choose.trials import MOST_TIMED, Trial, TrialResult, measure_recipes, run_trials, shorten
from innerloop.core.errors import UserError


def validate_scores(problem: SearchProblem, settings: ValidateSettings, session: Session) -> ScoreValidation:
    """Scores and trains random candidates, and compares every score with the accuracy."""
    cells = random_pool(problem.space, min(settings.cells, problem.space.total), problem.seed)
    scores = score_pool(problem, session, cells, list(SCORES), settings.repeats)
    racers = [Racer(problem.entrant(cell, f"{place:03d}"), []) for place, cell in enumerate(cells)]
    plan = decided(session.run, "length", lambda: _decide(problem, settings, session, racers))
    steps, episodes = plan["steps"], plan["episodes"]
    session.say(f"each of {len(cells)} candidates: {steps} steps, {episodes} validation tasks")
    trials = [
        Trial(
            shorten(racer.entrant.recipe, steps, problem.queries),
            session.run / "candidates" / racer.name,
            "trained",
            steps,
            episodes,
        )
        for racer in racers
    ]
    with session.counting(len(trials), "candidates") as bar:
        done = itertools.count(1)
        for racer, result in zip(
            racers, run_trials(trials, session.pool, lambda _: bar.update(next(done))), strict=True
        ):
            racer.rungs.extend([] if result is None else [result])
    keep_race(session.run, racers)
    results = [racer.last for racer in racers]
    table, reliability = compare_scores(scores, results, chance=1 / problem.ways, seed=problem.seed)
    return ScoreValidation(
        table,
        reliability,
        candidates=[
            ScoredCandidate(describe(problem.space, cell), scores.of(place), results[place])
            for place, cell in enumerate(cells)
        ],
        protocol=protocol_of(problem, steps, episodes),
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
        raise too_small(settings.budget, session.seconds + needed, what, ", or fewer cells=")
    steps = settings.steps or int(in_steps(rungs, costs[0].step).lengths[0])
    return {"steps": steps, "episodes": rungs.episodes, "seconds_of": costs[0]._asdict()}


def compare_scores(
    scores: Scores, results: Sequence[TrialResult], *, chance: float, seed: int = 0
) -> tuple[list[ScorePrediction], Accuracies]:
    """The table of scores against accuracies, and how far either can be trusted."""
    lost = sum(result.mean is None for result in results)
    if lost == len(results):
        raise UserError("training diverged for every candidate: lower outer.lr.")
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
