"""Where repeats are spent: on decisions that are close, while the budget lasts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from innerloop.choose.architectures.importance import Numbers, Order, sorted_group
from innerloop.choose.architectures.reliability import Noise
from innerloop.choose.architectures.stages import Group
from innerloop.core.statistics import t_quantile_975


def quantile(confidence: float, freedom: int) -> float:
    """Of Student's t, two-sided: the normal one, stretched as t is at 95 %.

    >>> round(quantile(0.95, 10), 3), round(quantile(0.95, 10**6), 3)
    (2.228, 1.96)
    """
    normal = NormalDist()
    return normal.inv_cdf(0.5 + confidence / 2) * t_quantile_975(max(1, freedom)) / normal.inv_cdf(0.975)


def gap(values: Numbers, a: int, b: int, noise: Noise) -> tuple[float, float]:
    """Mean of b's importance minus a's over the repeats that both have, and its standard error."""
    both = np.isfinite(values[a]) & np.isfinite(values[b])
    count = int(both.sum())
    mean = float((values[b, both] - values[a, both]).mean())
    return mean, noise.deviation * math.sqrt(2 / count)


class Contest(NamedTuple):
    """A group whose decision is open: how close it is (in standard errors), and who is still in it."""

    closeness: float
    places: tuple[int, ...]


def contests(
    values: Numbers, order: Order, groups: Sequence[Group], noise: Noise, confidence: float
) -> list[Contest]:
    """Open decisions, the closest first.

    An item that would go is settled if it is clearly less important than the first that would stay, and one
    that would stay if it is clearly more important than the last that would go.
    """
    limit = quantile(confidence, noise.freedom)
    undecided = []
    for group in groups:
        ranked = sorted_group(order, group)
        last, first = ranked[group.drop - 1], ranked[group.drop]
        open_: dict[int, float] = {}
        for place, item in enumerate(ranked):
            pair = (item, first) if place < group.drop else (last, item)
            mean, error = gap(values, *pair, noise)
            if mean <= limit * error:
                open_[item] = mean / error if error else 0.0
        if open_:
            undecided.append(Contest(min(open_.values()), tuple(sorted({*open_, last, first}))))
    return sorted(undecided)


def affordable(open_: Sequence[Contest], budget: int) -> list[int]:
    """Items of the closest contests, whole ones only, as many as the budget allows."""
    taken: list[int] = []
    for contest in open_:
        if len(taken) + len(contest.places) > budget:
            break
        taken += contest.places
    return sorted(taken)
