"""Genotypes as tables of strings: what a recipe, a TOML or a JSON file holds. Nothing is evaluated.

The table has the entries ``normal`` and ``reduce``, each a list of three nodes, each a list of two edges,
each the operator and the value that it reads: ``"conv_3x3(0)"``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from innerloop.core.errors import UserError
from innerloop.nets.cells.genotype import INPUTS, KINDS, CellEdges, Edge, Genotype, check_genotype

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
