"""A race by time: every method is trained for as many seconds, half of them go on, until two are left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from innerloop.choose.pilot.budget import (
    CAUTION,
    JUDGING,
    LEAST_EPISODES,
    LEAST_STEPS,
    MOST_EPISODES,
    mean_costs,
)
from innerloop.choose.pilot.trials import Costs

LAST = 2
"""So many reach the last rung, and are judged once more on fresh tasks."""

FRESH = 2
"""Times as many fresh tasks as validation tasks of a rung."""


class Rungs(NamedTuple):
    """How long methods are trained."""

    fields: list[int]
    seconds: list[float]
    episodes: int


def halved(methods: int) -> list[int]:
    """How many race at every rung.

    >>> halved(7), halved(2), halved(1)
    ([7, 4, 2], [2], [1])
    """
    fields = [methods]
    while fields[-1] > LAST:
        fields.append(-(-fields[-1] // 2))
    return fields


def planned(costs: Sequence[Costs], workers: int, seconds: float) -> Rungs | None:
    """The longest race within the seconds; None if the slowest method could not do enough steps in it.

    >>> costs = [Costs(0.02, 0.004, 0.1)] * 4
    >>> plan = planned(costs, 2, 30.0)
    >>> plan.fields, [round(s, 1) for s in plan.seconds], plan.episodes
    ([4, 2], [7.5, 15.1], 200)
    >>> planned(costs, 2, 2.0) is None
    True
    """
    work, left = _work(len(costs), workers), CAUTION * seconds
    cost = mean_costs(costs)
    room = JUDGING * left / (work.judgements * cost.episode)
    episodes = int(min(MOST_EPISODES, max(LEAST_EPISODES, room)))
    rest = left - episodes * work.judgements * cost.episode - work.builds * cost.build
    first = rest / work.training
    if first < LEAST_STEPS * max(c.step for c in costs):
        return None
    return Rungs(work.fields, [first * 2**rung for rung in range(len(work.fields))], episodes)


def shortest(costs: Sequence[Costs], workers: int) -> float:
    """Seconds of the shortest race that tells anything."""
    work, cost = _work(len(costs), workers), mean_costs(costs)
    training = work.training * LEAST_STEPS * max(c.step for c in costs)
    return (training + LEAST_EPISODES * work.judgements * cost.episode + work.builds * cost.build) / CAUTION


class _Work(NamedTuple):
    """What a race asks of one process: trainings in units of the first rung, judgements, and builds."""

    fields: list[int]
    training: float
    judgements: float
    builds: float


def _work(methods: int, workers: int) -> _Work:
    fields = halved(methods)
    turns = [-(-n // workers) for n in fields]
    added = [1.0, *(2.0**rung for rung in range(len(fields) - 1))]
    last = -(-min(LAST, methods) // workers)
    training = sum(turn * more for turn, more in zip(turns, added, strict=True))
    return _Work(fields, training, sum(turns) + FRESH * last, sum(turns) + last)
