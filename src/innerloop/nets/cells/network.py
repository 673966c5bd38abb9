"""Networks of stacked cells: a found architecture, or a supernet with several operators on an edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

import innerloop.nets.noise as noise
import innerloop.nets.norms as norms
import innerloop.nets.ops.choice as ops
from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.random import generator as generator_for
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets.cells.genotype import EDGES, INPUTS, NODES, Choices, Genotype, read_choices
from innerloop.nets.cells.operators import (
    CellPlan,
    Norm,
    Piece,
    StackPlan,
    check_stack,
    kernels,
    reduction_places,
    run,
    stack,
)
from innerloop.nets.initial import standard_normal, uniform
from innerloop.nets.network import Network, Pass
from innerloop.nets.resnet12 import apply_linear_head, linear_head

FIRST_WEIGHTS = ("uniform", "fan_in", "fan_out")
DROP_RAMP = 60_000
"""Passes over which drop-path rises: 100 epochs of mini-ImageNet in batches of 64 (MetaNTK-NAS)."""


class _Manner(NamedTuple):
    """How the pieces of a network are run."""

    policy: str
    statistics: Statistics
    mean: bool
    drop_path: float
    drop_ramp: int
    drop_epoch: int
    seed: int


def cell_network(
    pictures: int,
    size: int,  # noqa: ARG001 (any side works; networks of pictures are all given it)
    outputs: int,
    /,
    genotype: str | Genotype | Choices | Mapping[str, Any] = "metanas",
    cells: int = 5,
    channels: int = 48,
    norm: str = "transductive",
    conv_3x3: Literal["separable", "dense"] = "separable",
    mixing: Literal["sum", "mean"] = "sum",
    final_norm: bool = False,
    stem: bool = True,
    reductions: Sequence[int] | None = None,
    first_weights: Literal["uniform", "fan_in", "fan_out"] = "uniform",
    drop_path: float = 0.0,
    drop_ramp: int = DROP_RAMP,
    drop_epoch: int = 1,
    seed: int = 0,
    head_bias: bool = True,
) -> Network:
    """Cells on top of each other, global average pooling, and a linear readout (MetaNAS, MetaNTK-NAS).

    A network's weights depend on the generator and on their names only: with an operator removed, the others
    have the weights that they had.

    Args:
        pictures: channels of the pictures.
        size: their side; any works.
        outputs: output dimension.
        genotype: name of a published cell, a genotype, its table, or the operators that remain on every edge
            (a supernet: all of them are run).
        cells: how many; 5 and 8 are usual.
        channels: of the first cell; they double where a cell reduces.
        norm: the norm policy; ``group`` while scoring, any other while training.
        conv_3x3: ``separable`` as in the released code, or ``dense`` as the paper's text may be read.
        mixing: what becomes of several operators on an edge: their sum, or their mean (the released code
            weighs them by a softmax of numbers that are nearly equal).
        final_norm: norm and ReLU before pooling, as the released network has in the search and not after it.
        stem: whether a convolution stands before the first cell (not where linear regions are counted).
        reductions: the cells that reduce; at a third and two thirds of the depth if omitted.
        first_weights: ``uniform`` as torch starts layers, or normal of variance 2/fan_in or 2/fan_out.
        drop_path: the probability to leave an operator out for a sample in training, after the ramp.
        drop_ramp: passes over which it rises from zero, in proportion.
        drop_epoch: passes after which it is raised, each time.
        seed: of what is left out.
        head_bias: whether the last layer has a bias.

    Raises:
        UserError: there is no such architecture.

    >>> net = cell_network(3, 84, 64)
    >>> params, _ = net.init(torch.Generator().manual_seed(0))
    >>> sum(value.numel() for value in params.values())
    2005216
    """
    norms.check_policy(norm)
    noise.check_rate(drop_path)
    _check_choice("conv_3x3", conv_3x3, ("separable", "dense"))
    _check_choice("mixing", mixing, ("sum", "mean"))
    _check_choice("first_weights", first_weights, FIRST_WEIGHTS)
    places = reduction_places(cells) if reductions is None else tuple(reductions)
    check_stack(cells, channels, places)
    plan = stack(read_choices(genotype), pictures, cells, channels, places, stem, conv_3x3 == "dense")
    _refuse_constants(plan.n_out // NODES, norm, final_norm)

    def init(generator: torch.Generator) -> tuple[Params, Buffers]:
        """First parameters and buffers; the last layer is drawn last."""
        params, buffers = _draw(plan, norm, first_weights, final_norm, generator)
        return {**params, **linear_head(generator, outputs, plan.n_out, 1.0, head_bias)}, buffers

    def features(params: Params, buffers: Buffers, x: Tensor, statistics: Statistics) -> Pass:
        """What the last layer reads, and the buffers after this pass."""
        manner = _Manner(norm, statistics, mixing == "mean", drop_path, drop_ramp, drop_epoch, seed)
        x, changed = _stacked(plan, manner, params, buffers, ops.layout(x))
        if final_norm:
            x, seen = norms.kernel_norm("final.norm", norm, params, buffers, x, statistics)
            x, changed = ops.activate(x, 0.0), {**changed, **seen}
        return ops.pooled(x), {**buffers, **changed, **noise.advance(buffers)}

    names = ("head.weight", "head.bias") if head_bias else ("head.weight",)
    layered = norm in ("group", "none")
    return Network(init, features, apply_linear_head, names, norm, layered, noise=drop_path > 0)


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        hint = did_you_mean(str(value), known)
        raise UserError(f"unknown {name} '{value}'{hint}; there are {', '.join(known)}.")


def _refuse_constants(width: int, norm: str, final_norm: bool) -> None:
    """The mean over the places of a map is the norm layer's shift if every channel is a group of its own."""
    if norm == "group" and not final_norm and norms.groups_for(width) == width:
        raise UserError(
            f"group norm makes every channel of the last cell ({width} channels) a group of its own, so that "
            "pooled features are constants: set final_norm=true, more channels, or another norm."
        )


def _draw(
    plan: StackPlan, norm: str, first_weights: str, final_norm: bool, generator: torch.Generator
) -> tuple[Params, Buffers]:
    """Every kernel from a generator of its own, whose seed is made of one draw and the kernel's name."""
    device = generator.device
    seed = int(torch.randint(2**62, (), generator=generator, device=device))
    params: Params = {}
    buffers: Buffers = {}

    def add_norm(name: str, channels: int) -> None:
        """Adds what a norm layer starts with."""
        made, stats = norms.init_norm(name, channels, norm, device)
        params.update(made)
        buffers.update(stats)

    for piece in plan.pieces():
        for name, shape in kernels(piece.steps, piece.name, piece.n_in, piece.n_out).items():
            params[name] = _kernel(generator_for(seed, name, device=device), shape, first_weights)
        for step in piece.steps:
            if isinstance(step, Norm):
                add_norm(f"{piece.name}.{step.name}", piece.n_out)
    if final_norm:
        add_norm("final.norm", plan.n_out)
    return params, buffers


def _kernel(generator: torch.Generator, shape: tuple[int, ...], first_weights: str) -> Tensor:
    """Fans are torch's: inputs of a group, and all outputs, times the places of the kernel."""
    rows, columns, high, wide = shape
    if first_weights == "uniform":
        return uniform(generator, shape, columns * high * wide)
    fan = (columns if first_weights == "fan_in" else rows) * high * wide
    return standard_normal(generator, shape) * (2 / fan) ** 0.5


def _stacked(plan: StackPlan, manner: _Manner, params: Params, buffers: Buffers, x: Tensor) -> Pass:
    changed: Buffers = {}

    def ran(piece: Piece, x: Tensor) -> Tensor:
        """The output of one piece; what its norm layers saw is kept."""
        y, seen = run(piece.steps, piece.name, manner.policy, params, buffers, x, manner.statistics)
        changed.update(seen)
        return y

    def dropped(piece: Piece, x: Tensor) -> Tensor:
        """The same, left out for some samples where drop-path is on."""
        y = ran(piece, x)
        if not piece.steps or not manner.drop_path:  # an identity is never left out
            return y
        key = noise.key(piece.name, manner.seed)
        return noise.drop_path(y, buffers, manner.drop_path, key, manner.drop_ramp, manner.drop_epoch)

    last = x if plan.stem is None else ran(plan.stem, x)
    before = last
    for cell in plan.cells:
        values = [ran(piece, x) for piece, x in zip(cell.before, (before, last), strict=True)]
        before, last = last, _cell(cell, values, dropped, manner.mean)
    return last, changed


def _cell(cell: CellPlan, values: list[Tensor], ran: Any, mean: bool) -> Tensor:
    """The nodes' values side by side."""
    for node in range(INPUTS, INPUTS + NODES):
        terms: list[Tensor] = []
        for (source, into), pieces in zip(EDGES, cell.edges, strict=True):
            if into == node and pieces:
                edge = [ran(piece, values[source]) for piece in pieces]
                terms += [_total(edge) / len(edge)] if mean and len(edge) > 1 else edge
        values.append(_total(terms))
    return torch.cat(values[INPUTS:], 1)


def _total(terms: list[Tensor]) -> Tensor:
    """Their sum. The first two make a tensor that nobody else holds, to which the others are added."""
    if len(terms) == 1:
        return terms[0]
    total = terms[0] + terms[1]
    for term in terms[2:]:
        total = ops.add(total, term)
    return total
