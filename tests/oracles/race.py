"""The race of ``robust`` the slow way: one number at a time, and means that are put right in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from scipy.stats import t

Numbers = dict[tuple[int, int], float]
"""What was measured: by item and repeat."""


def fall(whole: tuple[float, float], left: tuple[float, float]) -> tuple[float, float]:
    """How far log C falls without an item, and minus how far R does, relatively."""
    return math.log(whole[0]) - math.log(left[0]), -(whole[1] - left[1]) / whole[1]


def deviation(numbers: Sequence[float]) -> float:
    mean = sum(numbers) / len(numbers)
    return math.sqrt(sum((number - mean) ** 2 for number in numbers) / len(numbers))


def fitted(known: Numbers, items: Sequence[int]) -> dict[int, float]:
    """Least squares of item plus repeat, by putting right the items' and the repeats' means in turn."""
    own = {place: value for place, value in known.items() if place[0] in items}
    repeats = sorted({repeat for _, repeat in own})
    of_item, of_repeat = dict.fromkeys(items, 0.0), dict.fromkeys(repeats, 0.0)
    moved = 1.0
    while moved > 1e-13:
        moved = 0.0
        for item in items:
            rest = [value - of_repeat[r] for (i, r), value in own.items() if i == item]
            moved = max(moved, abs(of_item[item] - sum(rest) / len(rest)))
            of_item[item] = sum(rest) / len(rest)
        for repeat in repeats:
            rest = [value - of_item[i] for (i, r), value in own.items() if r == repeat]
            of_repeat[repeat] = sum(rest) / len(rest)
    return of_item


def slow_race(
    score: Callable[[int | None, int], tuple[float, float]],
    groups: Sequence[tuple[tuple[int, ...], int]],
    first: int,
    most: int,
    confidence: float,
    extra: int,
) -> tuple[list[tuple[int, ...]], list[int]]:
    """What a stage removes group by group, and how often it measured each item.

    Args:
        score: condition number and regions without an item (None: with all) in a repeat.
        groups: places, and how many of them go.
        first: repeats that all items get.
        most: repeats that an item gets at most.
        confidence: of closed comparisons.
        extra: measurements beyond the first ones.
    """
    items = [item for places, _ in groups for item in places]
    falls = {(i, r): fall(score(None, r), score(i, r)) for i in items for r in range(first)}
    units = [deviation([sum(falls[i, r][k] for r in range(first)) / first for i in items]) for k in (0, 1)]

    def importance() -> Numbers:
        return {place: -(c / units[0] + r / units[1]) for place, (c, r) in falls.items()}

    for repeat in range(first, most):
        known = importance()
        squares, freedom = 0.0, 0
        for places, _ in groups:
            columns = [sum(known[i, r] for i in places) / len(places) for r in range(first)]
            for i in places:
                mean = sum(known[i, r] for r in range(first)) / first
                squares += sum(
                    (known[i, r] - columns[r] - mean + sum(columns) / first) ** 2 for r in range(first)
                )
            freedom += (len(places) - 1) * (first - 1)
        sigma, limit = math.sqrt(squares / freedom), t.ppf(0.5 + confidence / 2, freedom)
        contests = []
        for places, drop in groups:
            means = fitted(known, places)
            ranked = sorted(places, key=means.__getitem__)
            going, staying = ranked[drop - 1], ranked[drop]
            undecided = {}
            for i in places:
                low, high = (i, staying) if ranked.index(i) < drop else (going, i)
                shared = [r for r in range(repeat) if (low, r) in known and (high, r) in known]
                gap = sum(known[high, r] - known[low, r] for r in shared) / len(shared)
                error = sigma * math.sqrt(2 / len(shared))
                if gap <= limit * error:
                    undecided[i] = gap / error
            if undecided:
                contests.append((min(undecided.values()), sorted({*undecided, going, staying})))
        chosen: list[int] = []
        for _, places in sorted(contests):
            if len(chosen) + len(places) > extra:
                break
            chosen += places
        if not chosen:
            break
        extra -= len(chosen)
        for i in sorted(chosen):
            falls[i, repeat] = fall(score(None, repeat), score(i, repeat))

    known, removed = importance(), []
    for places, drop in groups:
        means = fitted(known, places)
        removed.append(tuple(sorted(sorted(places, key=means.__getitem__)[:drop])))
    return removed, [sum(i == item for i, _ in falls) for item in items]


def without_times(value: Any) -> Any:
    """What a search tells, without times and without names of directories."""
    if isinstance(value, dict):
        times = ("seconds", "cost", "recipe", "command", "run", "report", "spent")
        return {k: without_times(v) for k, v in value.items() if not k.endswith(times)}
    return [without_times(v) for v in value] if isinstance(value, list) else value
