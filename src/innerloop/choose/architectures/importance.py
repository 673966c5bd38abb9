"""How important operators are, where repeats are spent, and what a stage of pruning decides."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from innerloop.choose.architectures.findings import EdgeDecision, Round
from innerloop.choose.architectures.ranking import RUNS, Noise, item_means, mean_of, mean_tau, other_runs
from innerloop.choose.architectures.stages import EdgeOperator, OperatorGroup, Stage
from innerloop.core.statistics import t_quantile_975

Numbers: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = NDArray[np.int64]

LARGEST_LOG = math.log(2.0**23)
"""Of a condition number: what is singular in float32 counts as much."""


class StageTable(NamedTuple):
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


Rule: TypeAlias = Callable[[StageTable, Rows], Order]
"""A table, and which of its repeats count (with multiplicity), to an order of its items."""


def relative_change(whole: Numbers, left: Numbers) -> Numbers:
    """(whole − left) / whole. From infinite to finite is the largest gain, between infinities nothing."""
    with np.errstate(invalid="ignore", divide="ignore"):
        change = (whole - left) / whole
    both = np.isinf(whole) & np.isinf(left)
    change = np.where(np.isinf(whole) & np.isfinite(left), np.inf, change)
    return np.where(both, 0.0, change)


def dense_ranks(
    values: Sequence[float], descending: bool, figures: int | None = None
) -> tuple[Numbers, Numbers]:
    """Ranks from 0 in which equal values share one and the next has one more; and the order itself."""
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
    """Algorithm 1: ranks by both relative changes, averaged over repeats, are added."""

    def means(whole: Numbers, left: Numbers, rows: Rows) -> list[float]:
        """The mean relative change of every item over some repeats."""
        change = relative_change(whole, left)[:, rows]
        rounded = change if decimals is None else np.round(change, decimals)
        with np.errstate(invalid="ignore"):
            # +∞ in one repeat and −∞ in another tell nothing: 0, as for no change
            return np.nan_to_num(rounded.mean(1), nan=0.0, posinf=np.inf, neginf=-np.inf).tolist()

    def rule(table: StageTable, rows: Rows) -> Order:
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


def changes(table: StageTable) -> dict[str, Numbers]:
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


def spreads(table: StageTable, first: int) -> dict[str, float]:
    """The deviation of every change over the items, in the repeats that all of them have."""
    deviations = {name: float(np.std(value[:, :first].mean(1))) for name, value in changes(table).items()}
    return {name: value if value > 0 else 1.0 for name, value in deviations.items()}


def race_values(table: StageTable, units: dict[str, float]) -> Numbers:
    """Importance by repeat: minus the sum of changes, each in its unit."""
    return -sum((value / units[name] for name, value in changes(table).items()), np.zeros(()))


def race_rule(units: dict[str, float], groups: Sequence[OperatorGroup]) -> Rule:
    """The mean importance over the repeats that an item has."""

    def rule(table: StageTable, rows: Rows) -> Order:
        """The order by mean importance."""
        values = race_values(table, units)[:, rows]
        importance = item_means(values, [group.places for group in groups])
        return Order(importance, np.arange(len(importance), dtype=np.float64))

    return rule


def sort_group(order: Order, group: OperatorGroup) -> list[int]:
    """The places of a group, the least important first."""
    return sorted(group.places, key=lambda place: (order.importance[place], order.ties[place]))


def removals(order: Order, groups: Sequence[OperatorGroup]) -> list[tuple[int, ...]]:
    """What goes, group by group."""
    return [tuple(sorted(sort_group(order, group)[: group.drop])) for group in groups]


def quantile(confidence: float, freedom: int) -> float:
    """Of Student's t, two-sided: the normal one, stretched as t is at 95 %."""
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
    values: Numbers, order: Order, groups: Sequence[OperatorGroup], noise: Noise, confidence: float
) -> list[Contest]:
    """Open decisions, the closest first: items not clearly beyond the last to go or the first to stay."""
    limit = quantile(confidence, noise.freedom)
    undecided = []
    for group in groups:
        ranked = sort_group(order, group)
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


class Decision(NamedTuple):
    """The outcome of one stage."""

    stage: Stage
    removed: list[EdgeOperator]
    margins: list[float]
    taus: dict[str, float | None]
    group_taus: list[float | None]
    again: list[float | None]
    repeats: list[int]

    @property
    def measured(self) -> int:
        """How many measurements decided."""
        return sum(self.repeats)

    def edges(self) -> list[EdgeDecision]:
        """Every group's decision."""
        return [self._edge(number, group) for number, group in enumerate(self.stage.groups)]

    def _edge(self, number: int, group: OperatorGroup) -> EdgeDecision:
        items = [self.stage.items[place] for place in group.places]
        gone = [item for item in items if item in self.removed]
        return EdgeDecision(
            stage=self.stage.name,
            kind=items[0].kind,
            node=items[0].node,
            removed=[f"{item.operator}({item.source})" for item in gone],
            among=[f"{item.operator}({item.source})" for item in items],
            margin=self.margins[number],
            tau=self.group_taus[number],
            again=self.again[number],
            chance=1 / math.comb(len(items), group.drop),
            repeats=max(self.repeats[place] for place in group.places),
        )

    def round(self) -> Round:
        """The stage in short."""
        return Round(
            stage=self.stage.name,
            candidates=len(self.stage.items),
            measured=self.measured,
            removed=self.removed,
            again=mean_of(self.again),
            tau=mean_of(self.group_taus),
            taus=self.taus,
        )

    def line(self) -> str:
        """For people."""
        again = mean_of(self.again)
        said = (
            ""
            if again is None
            else f"; another run would agree on {again:.0%} of {len(self.again)} decisions"
        )
        return f"{self.stage.name}: {len(self.stage.items)} candidates, {self.measured} measurements{said}"


def decide(stage: Stage, table: StageTable, rule: Rule, seed: int) -> Decision:
    """Applies the rule to all repeats, and to those that other runs might have had."""
    everything = np.arange(table.repeats)
    order = rule(table, everything)
    gone = removals(order, stage.groups)
    alone = np.stack([rule(table, np.array([repeat])).importance for repeat in everything])
    alone = np.where(_measured(table).T, alone, np.nan)
    again: list[float | None] = [None] * len(stage.groups)
    if table.repeats > 1:
        again = [*_again(alone.T, gone, stage, seed)]
    return Decision(
        stage,
        [stage.items[place] for places in gone for place in places],
        [_margin(order, group) for group in stage.groups],
        {name: mean_tau(value.T.tolist()) for name, value in changes(table).items()},
        [mean_tau(alone[:, list(group.places)].tolist()) for group in stage.groups],
        again,
        _measured(table).sum(1).tolist(),
    )


def _again(values: Numbers, gone: list[tuple[int, ...]], stage: Stage, seed: int) -> list[float]:
    """The share of imagined other runs that remove what we remove, by group."""
    same = np.zeros(len(gone))
    ties = np.arange(len(values), dtype=np.float64)
    for other in other_runs(values, [group.places for group in stage.groups], seed):
        removed = removals(Order(other, ties), stage.groups)
        same += [mine == theirs for mine, theirs in zip(gone, removed, strict=True)]
    return (same / RUNS).tolist()


def _measured(table: StageTable) -> NDArray[np.bool_]:
    return ~np.isnan(table.any())


def _margin(order: Order, group: OperatorGroup) -> float:
    ranked = sort_group(order, group)
    return float(order.importance[ranked[group.drop]] - order.importance[ranked[group.drop - 1]])
