"""What a stage decides, and how clear it is: told for every edge."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from innerloop.choose.architectures.found import EdgeDecision, Round
from innerloop.choose.architectures.importance import (
    Numbers,
    Order,
    Rule,
    Table,
    changes,
    dropped,
    sorted_group,
)
from innerloop.choose.architectures.reliability import RUNS, mean_of, mean_tau, other_runs
from innerloop.choose.architectures.stages import Group, Item, Stage


class Decision(NamedTuple):
    """The outcome of one stage."""

    stage: Stage
    removed: list[Item]
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

    def _edge(self, number: int, group: Group) -> EdgeDecision:
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


def decide(stage: Stage, table: Table, rule: Rule, seed: int) -> Decision:
    """Applies the rule to all repeats, and to those that other runs might have had."""
    everything = np.arange(table.repeats)
    order = rule(table, everything)
    gone = dropped(order, stage.groups)
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
        removed = dropped(Order(other, ties), stage.groups)
        same += [mine == theirs for mine, theirs in zip(gone, removed, strict=True)]
    return (same / RUNS).tolist()


def _measured(table: Table) -> NDArray[np.bool_]:
    return ~np.isnan(table.any())


def _margin(order: Order, group: Group) -> float:
    ranked = sorted_group(order, group)
    return float(order.importance[ranked[group.drop]] - order.importance[ranked[group.drop - 1]])
