"""A cell architecture as plain data: what is chosen on every edge, of a found cell and during a search.

A cell has two inputs (0: the output of the cell before the last, 1: of the last), :data:`NODES` nodes in
between (2, 3, 4), and puts the nodes' values together as its output. A node is the sum of operators on
earlier values. A :class:`Genotype` has two edges into every node, with one operator each (the form in which
cells are published); :class:`Choices` says which operators remain on every edge (the form that is searched).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

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


_EDGE = re.compile(r"\s*(\w+)\s*\(\s*(\d{1,3})\s*\)\s*")


def to_table(genotype: Genotype) -> dict[str, list[list[str]]]:
    """The genotype as lists of strings.

    >>> from innerloop.nets.cells import PUBLISHED
    >>> to_table(PUBLISHED["metanas"])["normal"][0]
    ['conv_1x5_5x1(0)', 'conv_3x3(1)']
    """
    return {
        kind: [[f"{edge.operator}({edge.source})" for edge in edges] for edges in cell]
        for kind, cell in zip(KINDS, check_genotype(genotype), strict=True)
    }


def from_table(table: Mapping[str, Any]) -> Genotype:
    """The inverse of :func:`to_table`.

    Raises:
        UserError: the table is no genotype.
    """
    unknown = [name for name in table if name not in KINDS]
    missing = [kind for kind in KINDS if kind not in table]
    if unknown or missing:
        said = f"has no '{missing[0]}'" if missing else f"has an entry '{unknown[0]}'"
        raise UserError(f"the genotype {said}: give exactly the entries {' and '.join(KINDS)}.")
    return check_genotype(Genotype(*(_cell(kind, table[kind]) for kind in KINDS)))


def _cell(kind: str, nodes: Any) -> CellEdges:
    if not isinstance(nodes, (list, tuple)) or not all(isinstance(node, (list, tuple)) for node in nodes):
        raise UserError(f"the {kind} cell is not a list of nodes: give a list of edges for every node.")
    return tuple(
        tuple(_edge(f"node {number} of the {kind} cell", text) for text in node)
        for number, node in enumerate(nodes, start=INPUTS)
    )


def _edge(where: str, text: Any) -> Edge:
    match = _EDGE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise UserError(f'{where}: {text!r} is not an edge: write it as "conv_3x3(0)".')
    return Edge(match[1], int(match[2]))


def to_toml(genotype: Genotype) -> str:
    """The genotype as a TOML document, which can stand in a recipe under ``[model.settings.genotype]``."""
    import tomli_w

    return tomli_w.dumps(to_table(genotype))


def from_toml(text: str) -> Genotype:
    """Reads what :func:`to_toml` wrote.

    Raises:
        UserError: the text is no TOML, or its table is no genotype.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"the genotype is not TOML ({error}): see docs/search.md for its form.") from None
    return from_table(table)


_SHORT = dict(zip(["skip", "sep", "dil", "avg", "max", "fac", "conv"], OPERATORS, strict=True))


def _cells(normal: str, reduce: str) -> Genotype:
    """Six edges a cell, two for each node, in short."""

    def cell(text: str) -> tuple[tuple[Edge, ...], ...]:
        """The edges of one cell from its short form."""
        edges = [Edge(_SHORT[word[:-1]], int(word[-1])) for word in text.split()]
        return tuple(tuple(edges[2 * node : 2 * node + 2]) for node in range(NODES))

    return check_genotype(Genotype(cell(normal), cell(reduce)))


PUBLISHED: dict[str, Genotype] = {
    "metanas": _cells("fac0 conv1  conv0 sep2  dil1 fac3", "sep0 conv1  conv0 sep2  conv0 dil1"),
    "metanas-omniglot": _cells("dil0 sep1  avg0 sep1  fac0 conv2", "skip0 sep1  conv0 dil1  dil0 fac2"),
    "metanas-v1": _cells("conv0 conv1  fac0 dil2  fac0 max3", "dil0 sep1  conv0 max1  dil2 fac3"),
    "metantk-mini-5-1": _cells("sep0 sep1  sep1 sep2  conv0 sep2", "sep0 sep1  fac1 dil2  dil2 dil3"),
    "metantk-mini-5-2": _cells("sep0 sep1  sep1 sep2  conv2 sep3", "sep0 dil1  fac1 sep2  sep1 fac3"),
    "metantk-mini-5-3": _cells("sep0 sep1  sep0 max2  dil2 sep3", "dil0 sep1  conv1 sep2  sep2 sep3"),
    "metantk-mini-8-1": _cells("sep0 max1  fac0 sep1  sep2 conv3", "skip0 sep1  conv1 sep2  dil0 fac1"),
    "metantk-mini-8-2": _cells("conv0 sep1  fac0 conv1  sep0 dil2", "sep0 sep1  sep0 sep2  sep0 sep2"),
    "metantk-mini-8-3": _cells("sep0 fac1  sep0 sep1  conv0 sep1", "sep0 sep1  fac1 sep2  conv0 sep3"),
    "metantk-tiered-5-1": _cells("conv0 dil1  sep1 sep2  sep0 sep3", "skip0 dil1  sep0 fac2  max2 fac3"),
    "metantk-tiered-5-2": _cells("sep0 sep1  sep1 max2  conv2 conv3", "dil0 fac1  conv0 sep1  sep2 sep3"),
    "metantk-tiered-5-3": _cells("sep0 fac1  dil0 sep2  sep0 max3", "sep0 sep1  fac0 fac2  dil1 sep3"),
    "metantk-tiered-8-1": _cells("fac0 sep1  fac0 fac1  sep0 fac2", "skip0 conv1  conv0 fac1  sep0 sep3"),
    "metantk-tiered-8-2": _cells("fac0 dil1  sep0 sep1  sep0 conv2", "conv0 sep1  sep1 sep2  conv0 sep1"),
    "metantk-tiered-8-3": _cells("fac0 fac1  sep0 fac2  sep2 sep3", "conv0 conv1  sep0 sep1  sep1 fac3"),
}
"""Cells that papers have published, by name."""


def read_choices(given: str | Genotype | Choices | Mapping[str, Any]) -> Choices:
    """What remains on every edge, of whatever form an architecture is given in.

    Args:
        given: the name of a published cell, a genotype, its table (as in a recipe), or choices.

    Raises:
        UserError: there is no such cell, or what is given is none.

    >>> read_choices("metanas").normal[0]
    ('conv_1x5_5x1',)
    """
    if isinstance(given, Choices):
        return check_choices(given)
    if isinstance(given, Genotype):
        return choices_of(given)
    if isinstance(given, Mapping):
        return choices_of(from_table(given))
    if given not in PUBLISHED:
        hint = did_you_mean(str(given), PUBLISHED)
        raise UserError(
            f"unknown genotype '{given}'{hint}; there are {', '.join(PUBLISHED)}, or your own as a table."
        )
    return choices_of(PUBLISHED[given])
