"""Successive halving within a time: how many rungs, how long each, judged on how many tasks."""

from __future__ import annotations

import math
from typing import NamedTuple

from innerloop.choose.pilot.budget import CAUTION, JUDGING, LEAST_EPISODES, LEAST_STEPS, MOST_EPISODES
from innerloop.choose.pilot.trials import Costs

FRESH = 2
"""The last two are judged on so many times as many tasks, which decided nothing before."""


class Rungs(NamedTuple):
    """A race of two fields, each halved by itself."""

    steps: list[int]
    fields: list[tuple[int, int]]
    episodes: int


def halved(first: int, second: int) -> list[tuple[int, int]]:
    """Both fields at every rung, until one candidate of each is left.

    >>> halved(4, 5)
    [(4, 5), (2, 3), (1, 2), (1, 1)]
    """
    fields = [(first, second)]
    while max(fields[-1]) > 1:
        fields.append((-(-fields[-1][0] // 2), -(-fields[-1][1] // 2)))
    return fields


def _seconds(fields: list[tuple[int, int]], workers: int, costs: Costs, start: float, episodes: int) -> float:
    """What a race takes: every rung waits for its slowest process."""
    total = FRESH * episodes * costs.episode * -(-2 // workers)
    for rung, field in enumerate(fields):
        turns = -(-sum(field) // workers)
        more = start if rung == 0 else start * 2 ** (rung - 1)
        total += turns * (more * costs.step + episodes * costs.episode + costs.build)
    return total


def affordable_rungs(
    first: int,
    second: int,
    workers: int,
    costs: Costs,
    seconds: float,
    steps: int | None = None,
    episodes: int | None = None,
) -> Rungs | None:
    """The longest race of two fields within the seconds; None if even the shortest takes longer.

    ``steps`` (of the last rung) and ``episodes`` are taken as they are where they are asked for.

    >>> affordable_rungs(2, 2, 2, Costs(0.05, 0.01, 0.0), 31.0)
    Rungs(steps=[139, 278], fields=[(2, 2), (1, 1)], episodes=139)
    """
    fields = halved(first, second)
    left = CAUTION * seconds
    free = _seconds(fields, workers, Costs(0.0, 1.0, 0.0), 0.0, 1) * costs.episode
    judged = episodes or min(MOST_EPISODES, max(LEAST_EPISODES, int(JUDGING * left / free)))
    if steps is not None:
        start = max(1, steps // 2 ** (len(fields) - 1))
    else:
        rest = left - _seconds(fields, workers, costs, 0.0, judged)
        start = math.floor(rest / _seconds(fields, workers, Costs(costs.step, 0.0, 0.0), 1.0, judged))
        if start < LEAST_STEPS:
            return None
    made = [start * 2**rung for rung in range(len(fields))]
    return Rungs([*made[:-1], steps or made[-1]], fields, judged)


def shortest(first: int, second: int, workers: int, costs: Costs, episodes: int | None = None) -> float:
    """Seconds of the shortest race that tells anything."""
    return _seconds(halved(first, second), workers, costs, LEAST_STEPS, episodes or LEAST_EPISODES) / CAUTION
