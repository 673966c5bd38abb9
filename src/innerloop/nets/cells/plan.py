"""Which operators stand where in a stack of cells, with their channels and strides."""

from __future__ import annotations

from typing import NamedTuple

from innerloop.core.errors import UserError
from innerloop.nets.cells.genotype import EDGES, INPUTS, NODES, Choices
from innerloop.nets.cells.operators import Program, halve, program, project, stem


class Piece(NamedTuple):
    """An operator in its place."""

    name: str
    steps: Program
    n_in: int
    n_out: int


class CellPlan(NamedTuple):
    """One cell: what is done to its two inputs, and the operators on its nine edges."""

    before: tuple[Piece, Piece]
    edges: tuple[tuple[Piece, ...], ...]


class StackPlan(NamedTuple):
    """The whole network but for its last layer; ``n_out`` features come out."""

    stem: Piece | None
    cells: tuple[CellPlan, ...]
    n_out: int

    def pieces(self) -> list[Piece]:
        """Every operator of the network, in order."""
        made = [] if self.stem is None else [self.stem]
        for cell in self.cells:
            made += [*cell.before, *(piece for edge in cell.edges for piece in edge)]
        return made


def reduction_places(cells: int) -> tuple[int, ...]:
    """Where cells reduce: at a third and two thirds of the depth.

    >>> reduction_places(5), reduction_places(8)
    ((1, 3), (2, 5))
    """
    return tuple(sorted({cells // 3, 2 * cells // 3}))


def stack(
    choices: Choices,
    pictures: int,
    cells: int,
    channels: int,
    reductions: tuple[int, ...],
    with_stem: bool = True,
    dense: bool = False,
) -> StackPlan:
    """The network that stacks cells; every reduction halves the side and doubles the channels.

    >>> from innerloop.nets.cells import read_choices
    >>> stack(read_choices("metanas"), 3, 5, 48, (1, 3)).n_out
    576
    """
    first = Piece("stem", stem(), pictures, channels) if with_stem else None
    n_before = n_last = channels if with_stem else pictures
    width, reduced, made = channels, False, []
    for number in range(cells):
        reduces = number in reductions
        width = 2 * width if reduces else width
        cell = f"cell{number}"
        before = (
            Piece(f"{cell}.input0", halve() if reduced else project(), n_before, width),
            Piece(f"{cell}.input1", project(), n_last, width),
        )
        made.append(CellPlan(before, _edges(choices, cell, width, reduces, dense)))
        n_before, n_last, reduced = n_last, NODES * width, reduces
    return StackPlan(first, tuple(made), n_last)


def _edges(
    choices: Choices, cell: str, width: int, reduces: bool, dense: bool
) -> tuple[tuple[Piece, ...], ...]:
    remaining = choices.reduce if reduces else choices.normal
    return tuple(
        tuple(
            Piece(
                f"{cell}.edge{source}-{node}.{operator}",
                program(operator, 2 if reduces and source < INPUTS else 1, dense),
                width,
                width,
            )
            for operator in operators
        )
        for (source, node), operators in zip(EDGES, remaining, strict=True)
    )


def check_stack(cells: int, channels: int, reductions: tuple[int, ...]) -> None:
    """Refuses numbers of which no network can be made."""
    for name, value in (("cells", cells), ("channels", channels)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UserError(f"a network of cells cannot have {name}={value}: give a whole number from 1 up.")
    wrong = [place for place in reductions if place not in range(cells)]
    if wrong:
        raise UserError(f"there is no cell {wrong[0]} to reduce at: give reductions from 0 to {cells - 1}.")
