"""The two fields of a race: the best candidates by a score, and random ones of the same size."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from innerloop.choose.architectures.methods import find_method, search
from innerloop.choose.architectures.pool import read_kept
from innerloop.choose.architectures.prune import foreseen_seconds
from innerloop.choose.architectures.scoring import Scores, score_candidates
from innerloop.choose.architectures.shortlist import random_pool, shortlist_reliability
from innerloop.choose.architectures.size import count_parameters
from innerloop.choose.architectures.space import Space, random_of_size
from innerloop.choose.pilot.budget import too_small
from innerloop.choose.pilot.keep import MEASURED, Sitting, decided
from innerloop.choose.pilot.problem import Problem
from innerloop.choose.pilot.settings import SUMS, Search
from innerloop.core.errors import UserError
from innerloop.core.random import derive_seed
from innerloop.core.words import duration

SHARE = 0.25
"""Of the budget that scoring may take."""

MOST_PRUNING = 0.4
"""Of the budget that a search by pruning may take: random candidates are to have as much time in the race."""

MOST_POOL, LEAST_POOL = 200, 4
TOLERANCE = 0.1
"""Relative difference of a random candidate's parameters from those of its counterpart."""

_ATTEMPTS = 30


class Ranking(NamedTuple):
    """What was found before any training."""

    order: list[Any]
    seconds: float
    reliability: Callable[[int], dict[str, Any]]


def score_names(text: str) -> tuple[str, ...]:
    """The scores that ``score=`` means, each once.

    >>> score_names("te-nas,flops")
    ('ntk', 'regions', 'flops')
    """
    names = [name for word in text.split(",") for name in SUMS.get(word, (word,))]
    return tuple(dict.fromkeys(names))


def ranked(problem: Problem, settings: Search, sitting: Sitting) -> Ranking:
    """Candidates by ``method=``, the best first."""
    if settings.method == "shortlist":
        return _scored_pool(problem, settings, sitting)
    decided(sitting, "pruning", lambda: {"seconds": _fits(problem, settings, sitting)})
    pruned = search(
        settings.method,
        problem.space,
        problem.draws,
        seed=problem.seed,
        workers=sitting.workers,
        keep=sitting.measured,
        say=sitting.say,
        ranks=sitting.ranks,
    )
    clear = {} if pruned.reliability is None else pruned.reliability.as_dict()
    told = {**clear, "rounds": [stage._asdict() for stage in pruned.rounds]}
    return Ranking([each.candidate for each in pruned.ranked], _seconds_of_scoring(sitting), lambda _: told)


def _seconds_of_scoring(sitting: Sitting) -> float:
    """Of all measurements until now, those before an interruption too; asked again, it is the same."""

    def total() -> dict[str, float]:
        return {"seconds": sum(m.seconds for m in read_kept(sitting.run / MEASURED).values())}

    return float(decided(sitting, "scoring", total)["seconds"])


def _fits(problem: Problem, settings: Search, sitting: Sitting) -> float:
    """Seconds that pruning will take; it is refused now if that leaves no time for the pilot."""
    method = find_method(settings.method).settings
    needed = foreseen_seconds(problem.space, problem.draws, method) / sitting.hands
    sitting.say(f"method={settings.method} will take about {duration(round(needed))}")
    if needed > MOST_PRUNING * settings.seconds:
        whole = sitting.seconds + needed / MOST_PRUNING
        raise too_small(
            settings.budget, whole, f"method={settings.method} and a pilot", ", or method=shortlist"
        )
    return needed


def _scored_pool(problem: Problem, settings: Search, sitting: Sitting) -> Ranking:
    """Random candidates ranked by the score; as many as a quarter of the budget allows, unless told."""
    size = decided(sitting, "pool", lambda: {"pool": _pool_size(problem, settings, sitting)})["pool"]
    pool = random_pool(problem.space, size, problem.seed)
    scores = scores_of(problem, settings, sitting, pool)
    return Ranking(
        [pool[place] for place in scores.order()],
        _seconds_of_scoring(sitting),
        lambda k: shortlist_reliability(scores, k, problem.seed).as_dict(),
    )


def scores_of(problem: Problem, settings: Search, sitting: Sitting, candidates: Sequence[Any]) -> Scores:
    """Scores of candidates by the search's own score, on the draws that all others have."""
    return scored(problem, sitting, candidates, score_names(settings.score), settings.repeats)


def scored(
    problem: Problem, sitting: Sitting, candidates: Sequence[Any], names: Sequence[str], repeats: int
) -> Scores:
    """Candidates measured by some scores; what was measured before is read."""
    return score_candidates(
        problem.space,
        candidates,
        names,
        problem.draws,
        repeats,
        workers=sitting.workers,
        keep=sitting.measured,
        say=sitting.say,
        ranks=sitting.ranks,
    )


def _pool_size(problem: Problem, settings: Search, sitting: Sitting) -> int:
    largest = min(problem.space.total, settings.pool or MOST_POOL)
    if settings.pool is not None:
        return largest
    some = random_pool(problem.space, min(2, largest), problem.seed)
    before = sitting.clock()
    scores_of(problem, settings, sitting.alone, some)
    each = max(1e-3, sitting.clock() - before) / len(some)  # of one after the other: a cautious guess
    return max(min(LEAST_POOL, largest), min(largest, int(SHARE * settings.seconds / each)))


def random_field(space: Space[Any], seed: int, shortlisted: Sequence[Any], extra: int) -> list[Any]:
    """Random candidates, each of about the parameters of its counterpart, none of them shortlisted.

    Where no new candidate of a size is found, the tolerance grows.
    """
    drawn: list[Any] = []
    wanted = [*shortlisted, *itertools.islice(itertools.cycle(shortlisted), extra)]
    for place, counterpart in enumerate(wanted):
        parameters = count_parameters(space.build(counterpart, "transductive"))
        drawn.append(_of_size(space, derive_seed(seed, "random", place), parameters, {*drawn, *shortlisted}))
    return drawn


def _of_size(space: Space[Any], seed: int, parameters: int, taken: set[Any]) -> Any:
    tolerance = TOLERANCE
    for attempt in range(_ATTEMPTS):
        try:
            candidate = random_of_size(space, derive_seed(seed, attempt), parameters, tolerance, tries=100)
        except UserError:
            candidate = None
        if candidate is not None and candidate not in taken:
            return candidate
        tolerance *= 1.5
    raise UserError(
        f"the space {space.name} has too few candidates for a random one beside every shortlisted one: lower "
        "{k}, or widen the space.",
        names=("k",),
    )
