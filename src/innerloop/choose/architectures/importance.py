"""How important operators are, from what changes without them: by rank sums, or by sums of changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from innerloop.choose.architectures.reliability import item_means
from innerloop.choose.architectures.stages import Group

Numbers: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = NDArray[np.int64]

LARGEST_LOG = math.log(2.0**23)
"""Of a condition number: what is singular in float32 counts as much."""


class Table(NamedTuple):
    """What was measured in a stage, ``(items, repeats)`` each; not a number where nothing was."""

    condition: Numbers | None
    regions: Numbers | None
    whole_condition: Numbers | None
    whole_regions: Numbers | None

    @property
    def repeats(self) -> int:
        """How many there are."""
        return int(self.any().shape[1])

    def any(self) -> Numbers:
        """A column that there is."""
        column = self.condition if self.condition is not None else self.regions
        assert column is not None
        return column


class Order(NamedTuple):
    """The least important comes first: by ``importance``, and among equals by ``ties``."""

    importance: Numbers
    ties: Numbers


Rule: TypeAlias = Callable[[Table, Rows], Order]
"""A table, and which of its repeats count (with multiplicity), to an order of its items."""


def relative_change(whole: Numbers, left: Numbers) -> Numbers:
    """(whole − left) / whole. From infinite to finite is the largest gain, between infinities nothing.

    >>> relative_change(np.array([4.0, np.inf, np.inf]), np.array([3.0, 2.0, np.inf])).tolist()
    [0.25, inf, 0.0]
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        change = (whole - left) / whole
    both = np.isinf(whole) & np.isinf(left)
    change = np.where(np.isinf(whole) & np.isfinite(left), np.inf, change)
    return np.where(both, 0.0, change)


def dense_ranks(
    values: Sequence[float], descending: bool, figures: int | None = None
) -> tuple[Numbers, Numbers]:
    """Ranks from 0 in which equal values share one and the next has one more; and the order itself.

    >>> [part.tolist() for part in dense_ranks([0.5, 2.0, 0.5, 1.0], descending=True)]
    [[2.0, 0.0, 2.0, 1.0], [2.0, 0.0, 3.0, 1.0]]
    """
    keys = [value if figures is None else _significant(value, figures) for value in values]
    order = sorted(range(len(keys)), key=keys.__getitem__, reverse=descending)
    ranks, places = np.zeros(len(keys)), np.zeros(len(keys))
    for place, item in enumerate(order):
        places[item] = place
        if place:
            before = order[place - 1]
            ranks[item] = ranks[before] + (values[item] != values[before])
    return ranks, places


def _significant(value: float, figures: int, least: float = 1e-8) -> float:
    """Rounded as the released code rounds before it sorts."""
    if value == 0 or not math.isfinite(value):
        return value
    size = abs(value) + least
    power = math.floor(math.log10(size)) + 1
    return math.copysign(round(size * 10.0**-power, figures) * 10.0**power, value)


def rank_rule(decimals: int | None, figures: int | None) -> Rule:
    """Algorithm 1: ranks by both relative changes, averaged over repeats, are added.

    What lowers the condition number most by being removed, and the regions least, is least important.
    """

    def means(whole: Numbers, left: Numbers, rows: Rows) -> list[float]:
        """The mean relative change of every item over some repeats."""
        change = relative_change(whole, left)[:, rows]
        rounded = change if decimals is None else np.round(change, decimals)
        with np.errstate(invalid="ignore"):
            # +∞ in one repeat and −∞ in another tell nothing: 0, as for no change
            return np.nan_to_num(rounded.mean(1), nan=0.0, posinf=np.inf, neginf=-np.inf).tolist()

    def rule(table: Table, rows: Rows) -> Order:
        """The order by the sum of both ranks."""
        total = ties = np.zeros(len(table.any()))
        if table.condition is not None and table.whole_condition is not None:
            by_condition = means(table.whole_condition, table.condition, rows)
            total, ties = dense_ranks(by_condition, descending=True, figures=figures)
        if table.regions is not None and table.whole_regions is not None:
            by_regions = means(table.whole_regions, table.regions, rows)
            total = total + dense_ranks(by_regions, descending=False, figures=figures)[0]
        return Order(total, ties)

    return rule


def changes(table: Table) -> dict[str, Numbers]:
    """What is added up in a race: the fall of log C, minus the relative fall of R; high, if unimportant."""
    by_score = {}
    if table.condition is not None and table.whole_condition is not None:
        by_score["condition"] = _log(table.whole_condition) - _log(table.condition)
    if table.regions is not None and table.whole_regions is not None:
        by_score["regions"] = -relative_change(table.whole_regions, table.regions)
    return by_score


def _log(condition: Numbers) -> Numbers:
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(condition)
    return np.where(
        np.isnan(condition), np.nan, np.clip(np.where(condition > 0, logs, np.inf), 0, LARGEST_LOG)
    )


def spreads(table: Table, first: int) -> dict[str, float]:
    """The deviation of every change over the items, in the repeats that all of them have."""
    deviations = {name: float(np.std(value[:, :first].mean(1))) for name, value in changes(table).items()}
    return {name: value if value > 0 else 1.0 for name, value in deviations.items()}


def race_values(table: Table, units: dict[str, float]) -> Numbers:
    """Importance by repeat: minus the sum of changes, each in its unit."""
    return -sum((value / units[name] for name, value in changes(table).items()), np.zeros(()))


def race_rule(units: dict[str, float], groups: Sequence[Group]) -> Rule:
    """The mean importance over the repeats that an item has."""

    def rule(table: Table, rows: Rows) -> Order:
        """The order by mean importance."""
        values = race_values(table, units)[:, rows]
        importance = item_means(values, [group.places for group in groups])
        return Order(importance, np.arange(len(importance), dtype=np.float64))

    return rule


def sorted_group(order: Order, group: Group) -> list[int]:
    """The places of a group, the least important first."""
    return sorted(group.places, key=lambda place: (order.importance[place], order.ties[place]))


def dropped(order: Order, groups: Sequence[Group]) -> list[tuple[int, ...]]:
    """What goes, group by group."""
    return [tuple(sorted(sorted_group(order, group)[: group.drop])) for group in groups]
