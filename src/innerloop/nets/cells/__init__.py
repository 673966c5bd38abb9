"""Networks of stacked cells: what stands on which edge, published cells, and the networks that they make."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.nets.cells.genotype import EDGES as EDGES
    from innerloop.nets.cells.genotype import OPERATORS as OPERATORS
    from innerloop.nets.cells.genotype import PUBLISHED as PUBLISHED
    from innerloop.nets.cells.genotype import Choices as Choices
    from innerloop.nets.cells.genotype import Edge as Edge
    from innerloop.nets.cells.genotype import Genotype as Genotype
    from innerloop.nets.cells.genotype import all_choices as all_choices
    from innerloop.nets.cells.genotype import choices_from as choices_from
    from innerloop.nets.cells.genotype import choices_of as choices_of
    from innerloop.nets.cells.genotype import from_table as from_table
    from innerloop.nets.cells.genotype import from_toml as from_toml
    from innerloop.nets.cells.genotype import genotype_of as genotype_of
    from innerloop.nets.cells.genotype import mask_of as mask_of
    from innerloop.nets.cells.genotype import read_choices as read_choices
    from innerloop.nets.cells.genotype import remaining as remaining
    from innerloop.nets.cells.genotype import to_table as to_table
    from innerloop.nets.cells.genotype import to_toml as to_toml
    from innerloop.nets.cells.genotype import without as without
    from innerloop.nets.cells.network import cell_network as cell_network
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.nets.cells.genotype": (
                "EDGES OPERATORS PUBLISHED Choices Edge Genotype all_choices choices_from choices_of "
                "from_table from_toml genotype_of mask_of read_choices remaining to_table to_toml without"
            ),
            "innerloop.nets.cells.network": "cell_network",
        },
    )
