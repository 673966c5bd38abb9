"""Spaces of architectures: numbered candidates, how each becomes a network, and how large that is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from innerloop.choose.scores.sizes import Size, count_parameters, network_size
from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.random import derive_seed
from innerloop.nets.cells.genotype import (
    EDGES_KEPT,
    INPUTS,
    KINDS,
    NODES,
    OPERATORS,
    CellEdges,
    Choices,
    Edge,
    Genotype,
    all_choices,
    to_table,
)
from innerloop.nets.cells.network import cell_network
from innerloop.nets.convolutional import POOLINGS, convnet, last_side
from innerloop.nets.network import Network

Candidate = TypeVar("Candidate")


class Space(NamedTuple, Generic[Candidate]):
    """Architectures for pictures of one shape. A new space is one function that returns this.

    Attributes:
        name: as messages call it.
        total: number of candidates.
        candidate: number from 0 to ``total`` − 1 → candidate; every candidate has one number.
        build: ``(candidate, norm, **changes) -> network``; ``norm`` is ``group`` while scoring, any policy in
            training, and ``changes`` are further arguments of the network, for this once.
        describe: a line for people.
        settings: ``(candidate, norm) ->`` the ``[model]`` table of a recipe that trains it, as plain data.
        shape: of one picture.
        thin: ``(candidate, **changes) ->`` a network of one channel for pictures of 3×3 pixels in one colour
            channel, on which linear regions are counted; without it they are counted on the whole network.
        start: the operators on every edge where a search by pruning begins; ``build`` and ``thin`` then take
            choices too. None if the space cannot be pruned.

    Functions of a module (or ``functools.partial`` of them) can be sent to other processes, so that
    candidates are scored on all cores; closures cannot where processes are not forked.
    """

    name: str
    total: int
    candidate: Callable[[int], Candidate]
    build: Callable[..., Network]
    describe: Callable[[Candidate], str]
    settings: Callable[[Candidate, str], dict[str, Any]]
    shape: tuple[int, int, int]
    thin: Callable[..., Network] | None = None
    start: Choices | None = None


def candidates(space: Space[Candidate]) -> Iterator[Candidate]:
    """All candidates in order, one at a time."""
    return map(space.candidate, range(space.total))


def size_of(space: Space[Candidate], candidate: Candidate) -> Size:
    """How large the candidate's network is, as it is trained."""
    return network_size(space.build(candidate, "transductive"), space.shape)


def random_candidate(space: Space[Candidate], seed: int, *names: str | int) -> Candidate:
    """A candidate drawn evenly, a pure function of the seed (and of names that tell purposes apart)."""
    words = [derive_seed(seed, "candidate", *names, part) for part in ("high", "low")]
    # 126 bits, so that the remainder favours no candidate noticeably
    return space.candidate(((words[0] << 63) | words[1]) % space.total)


def random_of_size(
    space: Space[Candidate],
    seed: int,
    parameters: int,
    tolerance: float = 0.05,
    tries: int = 1000,
) -> Candidate:
    """A random candidate whose network has about this many parameters, a pure function of the arguments.

    Candidates are drawn until one fits, so those that fit are equally likely.

    Args:
        space: where to draw.
        seed: of the draws.
        parameters: wanted, the last layer's included.
        tolerance: relative difference that is allowed.
        tries: draws after which to give up.

    Raises:
        UserError: none was found.
    """
    sizes = []
    for attempt in range(tries):
        candidate = random_candidate(space, seed, "of size", attempt)
        sizes.append(count_parameters(space.build(candidate, "transductive")))
        if abs(sizes[-1] - parameters) <= tolerance * parameters:
            return candidate
    raise UserError(
        f"none of {tries} random candidates of the space {space.name} has {parameters} parameters within "
        f"{tolerance:.0%}; they had {min(sizes)} to {max(sizes)}: ask for a size in between or raise "
        "tolerance."
    )


_PAIRS = tuple(
    tuple(itertools.combinations(range(node), EDGES_KEPT)) for node in range(INPUTS, INPUTS + NODES)
)
_NODE_COUNTS = tuple(len(pairs) * len(OPERATORS) ** EDGES_KEPT for pairs in _PAIRS)


def cell_space(
    pictures: int, size: int, outputs: int, cells: int = 5, channels: int = 48, **settings: Any
) -> Space[Genotype]:
    """Normal and reduction cells of three nodes with two edges each and seven operators (MetaNTK-NAS).

    Drawn evenly, which is what reading a genotype off equally distributed weights comes to (the authors'
    random baseline). Under group norm, networks have the norm layer and ReLU before pooling that the
    authors' have while they are scored.

    Args:
        pictures: channels of the pictures.
        size: their side.
        outputs: output dimension.
        cells: how many are stacked.
        channels: of the first cell.
        settings: further arguments of :func:`~innerloop.nets.cells.network.cell_network`.

    >>> cell_space(3, 32, 5).total == (18 * 7**6) ** 2
    True
    """
    own = {"cells": cells, "channels": channels, **settings}
    sizes = (pictures, size, outputs)
    return Space(
        "cells",
        math.prod(_NODE_COUNTS) ** len(KINDS),
        _genotype,
        partial(_cells, sizes, own),
        describe_genotype,
        partial(_cells_table, own),
        (pictures, size, size),
        partial(_thin_cells, outputs, {name: value for name, value in own.items() if name in _THIN_TOO}),
        all_choices(),
    )


_THIN_TOO = ("conv_3x3", "mixing", "first_weights")
"""Settings that a network of cells shares with its thin one."""


def _genotype(number: int) -> Genotype:
    made = []
    for _ in KINDS:
        number, cell = _cell(number)
        made.append(cell)
    return Genotype(*made)


def _with_end(own: Mapping[str, Any], norm: str) -> dict[str, Any]:
    return {"final_norm": True, **own} if norm == "group" else dict(own)


def _cells(
    sizes: tuple[int, int, int], own: Mapping[str, Any], cell: Genotype | Choices, norm: str, **changes: Any
) -> Network:
    return cell_network(*sizes, genotype=cell, norm=norm, **{**_with_end(own, norm), **changes})


def _cells_table(own: Mapping[str, Any], genotype: Genotype, norm: str) -> dict[str, Any]:
    settings = {"genotype": to_table(genotype), **_with_end(own, norm)}
    return {"kind": "cells", "norm": norm, "settings": settings}


def _thin_cells(outputs: int, own: Mapping[str, Any], cell: Genotype | Choices, **changes: Any) -> Network:
    """One normal and one reduction cell of one channel, without a stem (TE-NAS, MetaNTK-NAS)."""
    fixed = {"cells": 2, "channels": 1, "reductions": (1,), "stem": False, "final_norm": True}
    return cell_network(1, 3, outputs, genotype=cell, norm="transductive", **{**own, **fixed, **changes})


def _cell(number: int) -> tuple[int, CellEdges]:
    """Takes one cell's digits off a number."""
    nodes = []
    for pairs in _PAIRS:
        number, pair = divmod(number, len(pairs))
        edges = []
        for source in pairs[pair]:
            number, operator = divmod(number, len(OPERATORS))
            edges.append(Edge(OPERATORS[operator], source))
        nodes.append(tuple(edges))
    return number, tuple(nodes)


def describe_genotype(genotype: Genotype) -> str:
    """The genotype in one line."""
    return "; ".join(
        f"{kind}: " + ", ".join("+".join(edges) for edges in nodes)
        for kind, nodes in to_table(genotype).items()
    )


class ConvVariant(NamedTuple):
    """A plain convolutional network; ``norm`` is ``batch`` (the policy in force), ``group`` or ``none``."""

    depth: int
    width: int
    kernel: int
    pooling: str
    norm: str


def conv_space(
    pictures: int,
    size: int,
    outputs: int,
    depths: tuple[int, ...] = (2, 3, 4, 5),
    widths: tuple[int, ...] = (16, 24, 32, 48, 64, 96),
    kernels: tuple[int, ...] = (3, 5),
    poolings: tuple[str, ...] = POOLINGS,
    norms: tuple[str, ...] = ("batch", "group", "none"),
) -> Space[ConvVariant]:
    """Variants of Conv4 in depth, width, kernel, halving and normalisation: few enough to train them all.

    Depths in which pictures of this side would vanish are left out.

    Args:
        pictures: channels of the pictures.
        size: their side.
        outputs: output dimension.
        depths: numbers of blocks to choose from.
        widths: channels to choose from.
        kernels: sides of kernels to choose from.
        poolings: ways of halving to choose from.
        norms: normalisations to choose from.

    >>> space = conv_space(1, 28, 5)
    >>> space.total, space.describe(space.candidate(0))
    (360, '2 blocks of 16 filters 3×3, halved by max, norm batch')
    """
    options = [
        ConvVariant(*made)
        for made in itertools.product(depths, widths, kernels, poolings, norms)
        if last_side(size, made[0], made[3]) >= 1
    ]
    if not options:
        raise UserError(f"pictures of side {size} vanish in {min(depths)} halvings: use larger ones.")

    sizes = (pictures, size, outputs)
    return Space(
        "convnet",
        len(options),
        options.__getitem__,
        partial(_convnet, sizes),
        _describe,
        _convnet_table,
        (pictures, size, size),
        partial(_thin_convnet, outputs),
    )


def _convnet(sizes: tuple[int, int, int], variant: ConvVariant, norm: str, **changes: Any) -> Network:
    return convnet(*sizes, norm=_policy(variant, norm), **{**_shape(variant), **changes})


def _convnet_table(variant: ConvVariant, norm: str) -> dict[str, Any]:
    return {"kind": "convnet", "norm": _policy(variant, norm), "settings": _shape(variant)}


def _thin_convnet(outputs: int, variant: ConvVariant, **changes: Any) -> Network:
    """One filter per block, halved by strides (3×3 pixels would vanish in pooling)."""
    shape = {**_shape(variant), "width": 1, "pooling": "stride", **changes}
    return convnet(1, 3, outputs, norm=_policy(variant, "transductive"), **shape)


def _policy(variant: ConvVariant, norm: str) -> str:
    # without normalisation (SynFlow) means without, also where a variant has its own
    return norm if variant.norm == "batch" or norm == "none" else variant.norm


def _shape(variant: ConvVariant) -> dict[str, Any]:
    return {name: value for name, value in variant._asdict().items() if name != "norm"}


def _describe(v: ConvVariant) -> str:
    filters = f"{v.width} filters {v.kernel}×{v.kernel}"
    return f"{v.depth} block{'s' if v.depth > 1 else ''} of {filters}, halved by {v.pooling}, norm {v.norm}"


SPACES: dict[str, Callable[..., Space[Any]]] = {"cells": cell_space, "convnet": conv_space}
"""Spaces of architectures by name: functions of the pictures' channels, their side and the outputs."""


def get_space(name: str, pictures: int, size: int, outputs: int, **settings: Any) -> Space[Any]:
    """A space by its name, for pictures of this shape.

    Args:
        name: one of :data:`SPACES`.
        pictures: channels of the pictures.
        size: their side.
        outputs: output dimension.
        **settings: further arguments of the space.

    Raises:
        UserError: there is no such space.
    """
    if name not in SPACES:
        raise UserError(f"unknown space '{name}'{did_you_mean(name, SPACES)}; there are {', '.join(SPACES)}.")
    return SPACES[name](pictures, size, outputs, **settings)
