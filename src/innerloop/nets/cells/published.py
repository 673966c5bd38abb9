"""Cells that were published, by name.

``metanas`` is the cell that MetaNAS found on mini-ImageNet (Elsken et al. 2020; ``genotype_metanas_in_v2``
of the authors' code), ``metanas-omniglot`` the one found on Omniglot (``genotype_metanas_og_v2``),
``metanas-v1`` an older one. ``metantk-DATA-CELLS-RUN`` are the twelve that MetaNTK-NAS' authors give as
examples in their scripts: three runs for each data set and number of cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from innerloop.core.errors import UserError, did_you_mean
from innerloop.nets.cells.genotype import (
    NODES,
    Choices,
    Edge,
    Genotype,
    check_choices,
    check_genotype,
    choices_of,
)
from innerloop.nets.cells.toml import from_table

_SHORT = {
    "skip": "skip_connect",
    "sep": "sep_conv_3x3",
    "dil": "dil_conv_3x3",
    "avg": "avg_pool_3x3",
    "max": "max_pool_3x3",
    "fac": "conv_1x5_5x1",
    "conv": "conv_3x3",
}


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
