"""A cell architecture as plain data: what is chosen on every edge, of a found cell and during a search.

A cell has two inputs (0: the output of the cell before the last, 1: of the last), :data:`NODES` nodes in
between (2, 3, 4), and puts the nodes' values together as its output. A node is the sum of operators on
earlier values. A :class:`Genotype` has two edges into every node, with one operator each (the form in which
cells are published); :class:`Choices` says which operators remain on every edge (the form that is searched).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from innerloop.core.errors import UserError, did_you_mean

OPERATORS = (
    "skip_connect",
    "sep_conv_3x3",
    "dil_conv_3x3",
    "avg_pool_3x3",
    "max_pool_3x3",
    "conv_1x5_5x1",
    "conv_3x3",
)
"""The seven operators of MetaNAS and MetaNTK-NAS."""

KINDS = ("normal", "reduce")
INPUTS, NODES, EDGES_KEPT = 2, 3, 2
EDGES = tuple((source, node) for node in range(INPUTS, INPUTS + NODES) for source in range(node))
"""All nine edges ``(source, node)`` of a cell, in the order of masks."""


class Edge(NamedTuple):
    """An operator, and the value that it reads (0 and 1: the inputs; 2, 3: earlier nodes)."""

    operator: str
    source: int


CellEdges: TypeAlias = tuple[tuple[Edge, ...], ...]
CellChoices: TypeAlias = tuple[tuple[str, ...], ...]


class Genotype(NamedTuple):
    """Two edges into every node of the normal and of the reduction cell.

    >>> pair = (Edge("conv_3x3", 0), Edge("skip_connect", 1))
    >>> check_genotype(Genotype((pair, pair, pair), (pair, pair, pair))).normal[0][1].operator
    'skip_connect'
    """

    normal: CellEdges
    reduce: CellEdges


class Choices(NamedTuple):
    """The operators that remain on each of the nine edges (see :data:`EDGES`) of both kinds of cell."""

    normal: CellChoices
    reduce: CellChoices


def check_genotype(genotype: Genotype) -> Genotype:
    """The genotype itself."""
    for kind, cell in zip(KINDS, genotype, strict=True):
        if len(cell) != NODES:
            raise UserError(f"the {kind} cell has {len(cell)} nodes: give the edges of {NODES}.")
        for node, edges in enumerate(cell, start=INPUTS):
            _check_node(kind, node, edges)
    return genotype


def _check_node(kind: str, node: int, edges: tuple[Edge, ...]) -> None:
    where = f"node {node} of the {kind} cell"
    if len(edges) != EDGES_KEPT:
        raise UserError(f"{where} has {len(edges)} edges: give {EDGES_KEPT}.")
    for operator, source in edges:
        check_operator(operator, where)
        if not 0 <= source < node:
            raise UserError(f"{where} cannot read value {source}: it reads one of 0 to {node - 1}.")
    if len({edge.source for edge in edges}) < len(edges):
        raise UserError(f"{where} reads value {edges[0].source} twice: give edges from different values.")


def check_operator(operator: str, where: str) -> None:
    """Refuses the name of an operator that there is not."""
    if operator not in OPERATORS:
        hint = did_you_mean(str(operator), OPERATORS)
        raise UserError(f"{where}: unknown operator '{operator}'{hint}; there are {', '.join(OPERATORS)}.")


def check_choices(choices: Choices) -> Choices:
    """The choices themselves."""
    for kind, cell in zip(KINDS, choices, strict=True):
        if len(cell) != len(EDGES):
            raise UserError(f"the {kind} cell has {len(cell)} edges: give the operators of {len(EDGES)}.")
        for (source, node), operators in zip(EDGES, cell, strict=True):
            for operator in operators:
                check_operator(operator, f"edge {source} to {node} of the {kind} cell")
        for node in range(INPUTS, INPUTS + NODES):
            if not any(cell[place] for place, edge in enumerate(EDGES) if edge[1] == node):
                raise UserError(
                    f"no path leads from the inputs through node {node} of the {kind} cell to its output: "
                    "leave an operator on one of its edges."
                )
    return choices


def all_choices() -> Choices:
    """Every operator on every edge: where a search begins.

    >>> sum(len(operators) for cell in all_choices() for operators in cell)
    126
    """
    return Choices(*(tuple(OPERATORS for _ in EDGES) for _ in KINDS))


def choices_of(genotype: Genotype) -> Choices:
    """A genotype as choices: one operator on the edges that it has, none on the others."""

    def cell(edges: CellEdges) -> CellChoices:
        """The operators on every edge of one cell."""
        chosen = {
            (edge.source, node): edge.operator
            for node, into in enumerate(edges, start=INPUTS)
            for edge in into
        }
        return tuple((chosen[edge],) if edge in chosen else () for edge in EDGES)

    check_genotype(genotype)
    return Choices(cell(genotype.normal), cell(genotype.reduce))


def genotype_of(choices: Choices) -> Genotype:
    """The genotype that is left when two edges into every node have one operator each.

    Raises:
        UserError: more is left, or less.
    """

    def cell(left: CellChoices) -> CellEdges:
        """The edges of one cell, by the node that they lead to."""
        return tuple(
            tuple(
                Edge(operator, source)
                for (source, into), operators in zip(EDGES, left, strict=True)
                for operator in operators
                if into == node
            )
            for node in range(INPUTS, INPUTS + NODES)
        )

    check_choices(choices)
    return check_genotype(Genotype(cell(choices.normal), cell(choices.reduce)))


def remaining(choices: Choices) -> Iterator[tuple[str, int, int, str]]:
    """Every ``(kind, source, node, operator)`` that is left, in the order of masks."""
    for kind, cell in zip(KINDS, choices, strict=True):
        for (source, node), operators in zip(EDGES, cell, strict=True):
            for operator in operators:
                yield kind, source, node, operator


def without(choices: Choices, kind: str, source: int, node: int, operator: str) -> Choices:
    """The choices with one operator removed from one edge.

    Args:
        choices: what remains on every edge.
        kind: ``normal`` or ``reduce``: the cell.
        source: where the edge begins.
        node: where it ends.
        operator: what is removed.

    >>> left = without(all_choices(), "normal", 0, 2, "conv_3x3")
    >>> len(left.normal[0]), len(left.reduce[0])
    (6, 7)
    """
    if (kind, source, node, operator) not in remaining(choices):
        raise UserError(f"{operator} is not on edge {source} to {node} of the {kind} cell any more.")
    cell = list(getattr(choices, kind))
    place = EDGES.index((source, node))
    cell[place] = tuple(name for name in cell[place] if name != operator)
    return choices._replace(**{kind: tuple(cell)})


def mask_of(choices: Choices) -> NDArray[np.bool_]:
    """Which operators remain, as booleans of shape (kinds, edges, operators).

    >>> mask_of(all_choices()).shape
    (2, 9, 7)
    """
    rows = [[[name in operators for name in OPERATORS] for operators in cell] for cell in choices]
    return np.array(rows, dtype=bool)


def choices_from(mask: NDArray[np.bool_]) -> Choices:
    """The inverse of :func:`mask_of`.

    >>> choices_from(mask_of(all_choices())) == all_choices()
    True
    """
    shape = (len(KINDS), len(EDGES), len(OPERATORS))
    if np.shape(mask) != shape:
        raise UserError(f"a mask of shape {np.shape(mask)} does not fit: give booleans of shape {shape}.")
    cells = [
        tuple(tuple(name for name, on in zip(OPERATORS, row, strict=True) if on) for row in cell)
        for cell in mask
    ]
    return check_choices(Choices(*cells))
