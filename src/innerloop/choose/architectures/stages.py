"""What is compared with what while a supernet is pruned, and what is left afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from innerloop.core.errors import UserError
from innerloop.nets.cells.genotype import (
    EDGES,
    EDGES_KEPT,
    INPUTS,
    KINDS,
    NODES,
    Choices,
    check_choices,
    remaining,
    without,
)


class EdgeOperator(NamedTuple):
    """An operator on an edge."""

    kind: str
    source: int
    node: int
    operator: str


class OperatorGroup(NamedTuple):
    """Operators of which some go: the places of its items in the stage, and how many go."""

    places: tuple[int, ...]
    drop: int


class Stage(NamedTuple):
    """One comparison: every item is removed once, alone."""

    name: str
    items: tuple[EdgeOperator, ...]
    groups: tuple[OperatorGroup, ...]


def check_start(choices: Choices) -> Choices:
    """The choices themselves."""
    check_choices(choices)
    for kind, cell in zip(KINDS, choices, strict=True):
        for node in range(INPUTS, INPUTS + NODES):
            left = sum(bool(cell[place]) for place, edge in enumerate(EDGES) if edge[1] == node)
            if left < EDGES_KEPT:
                raise UserError(
                    f"node {node} of the {kind} cell has operators on one edge only, and a cell keeps "
                    f"{EDGES_KEPT}: leave an operator on another of its edges."
                )
    return choices


def rounds_of(choices: Choices) -> int:
    """Rounds until every edge has one operator."""
    return max(len(operators) for cell in choices for operators in cell) - 1


def edge_stage(choices: Choices, number: int) -> Stage:
    """A round: every edge with several operators loses one."""
    items = [EdgeOperator(*each) for each in remaining(choices)]
    on_edge = Counter(item[:3] for item in items)
    several = [item for item in items if on_edge[item[:3]] > 1]
    groups = _groups(several, lambda item: item[:3], lambda _: 1)
    return Stage(f"round {number}", tuple(several), groups)


def node_stage(choices: Choices, nodes: Iterable[tuple[str, int]] | None = None) -> Stage:
    """The end: nodes with more than two edges lose those that are too many."""
    wanted = None if nodes is None else set(nodes)
    items = [EdgeOperator(*each) for each in remaining(choices)]
    into = Counter((item.kind, item.node) for item in items)  # edges into a node stand together
    crowded = {node for node in into if into[node] > EDGES_KEPT and (wanted is None or node in wanted)}
    several = [item for item in items if (item.kind, item.node) in crowded]
    groups = _groups(several, lambda item: (item.kind, item.node), lambda count: count - EDGES_KEPT)
    return Stage("the last round", tuple(several), groups)


def crowded_nodes(choices: Choices) -> list[tuple[str, int]]:
    """Kinds and nodes with more edges than are kept, in order."""
    return list(dict.fromkeys((item.kind, item.node) for item in node_stage(choices).items))


def _groups(
    items: list[EdgeOperator], key: Callable[[EdgeOperator], object], drop: Callable[[int], int]
) -> tuple[OperatorGroup, ...]:
    places: dict[object, list[int]] = {}
    for place, item in enumerate(items):
        places.setdefault(key(item), []).append(place)
    return tuple(OperatorGroup(tuple(mine), drop(len(mine))) for mine in places.values())


def remove_operators(choices: Choices, items: Iterable[EdgeOperator]) -> Choices:
    """The choices without these operators."""
    for item in items:
        choices = without(choices, *item)
    return choices
