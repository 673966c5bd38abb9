"""Before the race: candidates ranked by what needs no training, and random ones of the same size."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from innerloop.choose.architectures.measure import read_measurements
from innerloop.choose.architectures.prune import foreseen_seconds
from innerloop.choose.architectures.ranking import (
    Scores,
    random_pool,
    score_candidates,
    shortlist_reliability,
)
from innerloop.choose.architectures.search import find_method, search
from innerloop.choose.architectures.space import Space, random_of_size
from innerloop.choose.problem import SearchProblem
from innerloop.choose.race import budget_error
from innerloop.choose.scores.sizes import count_parameters
from innerloop.choose.session import Session
from innerloop.choose.settings import SUMS, SearchSettings
from innerloop.choose.trials import decide_once
from innerloop.core.errors import UserError
from innerloop.core.formatting import duration
from innerloop.core.random import derive_seed

SHARE = 0.25
"""Of the budget that scoring may take."""

MOST_PRUNING = 0.4
"""Of the budget that a search by pruning may take: random candidates are to have as much time in the race."""

MOST_POOL, LEAST_POOL = 200, 4
TOLERANCE = 0.1
"""Relative difference of a random candidate's parameters from those of its counterpart."""

TIMED = 4
"""Candidates whose costs are measured."""

_ATTEMPTS = 30


class Ranking(NamedTuple):
    """What was found before any training: candidates, the best first."""

    order: list[Any]
    seconds: float
    reliability: Callable[[int], dict[str, Any]]


def score_names(text: str) -> tuple[str, ...]:
    """The scores that ``score=`` means, each once."""
    names = [name for word in text.split(",") for name in SUMS.get(word, (word,))]
    return tuple(dict.fromkeys(names))


def rank_candidates(problem: SearchProblem, settings: SearchSettings, session: Session) -> Ranking:
    """Candidates by ``method=``, the best first."""
    if settings.method == "shortlist":
        return _scored_pool(problem, settings, session)
    decide_once(session.run, "pruning", lambda: {"seconds": _fits(problem, settings, session)})
    pruned = search(
        settings.method,
        problem.space,
        problem.draws,
        seed=problem.seed,
        workers=session.here,
        keep=session.measured,
        say=session.say,
    )
    clear = {} if pruned.reliability is None else pruned.reliability.as_dict()
    told = {**clear, "rounds": [stage._asdict() for stage in pruned.rounds]}
    return Ranking([each.candidate for each in pruned.ranked], _seconds_of_scoring(session), lambda _: told)


def _seconds_of_scoring(session: Session) -> float:
    """Of all measurements until now, those before an interruption too; asked again, it is the same."""

    def total() -> dict[str, float]:
        return {"seconds": sum(m.seconds for m in read_measurements(session.measured).values())}

    return float(decide_once(session.run, "scoring", total)["seconds"])


def _fits(problem: SearchProblem, settings: SearchSettings, session: Session) -> float:
    """Seconds that pruning will take; it is refused now if that leaves no time for the race."""
    method = find_method(settings.method).settings
    needed = foreseen_seconds(problem.space, problem.draws, method) / session.here
    session.say(f"method={settings.method} will take about {duration(round(needed))}")
    if needed > MOST_PRUNING * settings.seconds:
        whole = session.seconds + needed / MOST_PRUNING
        what = f"method={settings.method} and a pilot"
        raise budget_error(settings.budget, whole, what, ", or method=shortlist")
    return needed


def _scored_pool(problem: SearchProblem, settings: SearchSettings, session: Session) -> Ranking:
    """Random candidates ranked by the score; as many as a quarter of the budget allows, unless told."""
    size = decide_once(session.run, "pool", lambda: {"pool": _pool_size(problem, settings, session)})["pool"]
    pool = random_pool(problem.space, size, problem.seed)
    scores = own_scores(problem, settings, session, pool)
    return Ranking(
        [pool[place] for place in scores.order()],
        _seconds_of_scoring(session),
        lambda k: shortlist_reliability(scores, k, problem.seed).as_dict(),
    )


def own_scores(
    problem: SearchProblem, settings: SearchSettings, session: Session, candidates: Sequence[Any]
) -> Scores:
    """Scores of candidates by the search's own score, on the draws that all others have."""
    return score_pool(problem, session, candidates, score_names(settings.score), settings.repeats)


def score_pool(
    problem: SearchProblem, session: Session, candidates: Sequence[Any], names: Sequence[str], repeats: int
) -> Scores:
    """Candidates measured by some scores; what was measured before is read."""
    return score_candidates(
        problem.space,
        candidates,
        names,
        problem.draws,
        repeats,
        workers=session.here,
        keep=session.measured,
        say=session.say,
    )


def _pool_size(problem: SearchProblem, settings: SearchSettings, session: Session) -> int:
    largest = min(problem.space.total, settings.pool or MOST_POOL)
    if settings.pool is not None:
        return largest
    some = random_pool(problem.space, min(2, largest), problem.seed)
    before = session.clock()
    own_scores(problem, settings, session, some)
    each = max(1e-3, session.clock() - before) / len(some)  # of one after the other: a cautious guess
    return max(min(LEAST_POOL, largest), min(largest, int(SHARE * settings.seconds / each)))


def random_field(space: Space[Any], seed: int, shortlisted: Sequence[Any], extra: int) -> list[Any]:
    """Random candidates that are not shortlisted, each of about the parameters of its counterpart."""
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
