"""A race by time: every method is trained for as many seconds, half of them go on, until two are left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from innerloop.pilot.budget import CAUTION, JUDGING, LEAST_EPISODES, LEAST_STEPS, MOST_EPISODES
from innerloop.pilot.trials import Costs

LAST = 2
"""So many reach the last rung, and are judged once more on fresh tasks."""

FRESH = 2
"""Times as many fresh tasks as validation tasks of a rung."""


class Rungs(NamedTuple):
    """How long methods are trained.

    Attributes:
        fields: methods at every rung.
        seconds: of training, in all, at the end of every rung: each is twice the one before.
        episodes: validation tasks of a judgement.
    """

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

    Args:
        costs: of every method.
        workers: processes at a time.
        seconds: by the clock.

    >>> costs = [Costs(0.02, 0.004, 0.1)] * 4
    >>> plan = planned(costs, 2, 30.0)
    >>> plan.fields, [round(s, 1) for s in plan.seconds], plan.episodes
    ([4, 2], [5.7, 11.4], 200)
    >>> planned(costs, 2, 3.0) is None
    True
    """
    fields, left = halved(len(costs)), CAUTION * seconds
    episode, build = max(c.episode for c in costs), max(c.build for c in costs)
    judged = _turns(fields, workers) * episode + FRESH * episode * -(-min(LAST, len(costs)) // workers)
    episodes = int(min(MOST_EPISODES, max(LEAST_EPISODES, JUDGING * left / judged)))
    rest = left - episodes * judged - build * _turns(fields, workers)
    shares = sum(-(-n // workers) * _added(rung) for rung, n in enumerate(fields))
    first = rest / shares
    if first < LEAST_STEPS * max(c.step for c in costs):
        return None
    return Rungs(fields, [first * 2**rung for rung in range(len(fields))], episodes)


def shortest(costs: Sequence[Costs], workers: int) -> float:
    """Seconds of the shortest race that tells anything."""
    fields = halved(len(costs))
    step, episode, build = (max(column) for column in zip(*costs, strict=True))
    judged = _turns(fields, workers) * episode + FRESH * episode * -(-min(LAST, len(costs)) // workers)
    shares = sum(-(-n // workers) * _added(rung) for rung, n in enumerate(fields))
    whole = LEAST_EPISODES * judged + build * _turns(fields, workers) + shares * LEAST_STEPS * step
    return whole / CAUTION


def _turns(fields: Sequence[int], workers: int) -> int:
    """How often a process is busy with one method, at most."""
    return sum(-(-n // workers) for n in fields)


def _added(rung: int) -> float:
    """Seconds that a rung adds, in units of the first."""
    return 1.0 if rung == 0 else 2.0 ** (rung - 1)
