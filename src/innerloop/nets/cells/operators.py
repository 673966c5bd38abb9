"""The operators of cells, as programs of a few steps that are drawn, run and counted by one reading.

Every convolution is preceded by a ReLU and, with the one before it where there are two, followed by a norm
layer; none has a bias. Released code and the paper's words differ in one place: ``conv_3x3`` is a depthwise
and a pointwise convolution in the code of MetaNAS and of MetaNTK-NAS, and "Conv3x3" in their text. ``dense``
takes the text at its word.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

import innerloop.nets.norms as norms
import innerloop.nets.ops.choice as ops
from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets.cells.genotype import EDGES, INPUTS, NODES, Choices
from innerloop.nets.network import Pass


class Conv(NamedTuple):
    """A convolution without bias that keeps the side of the map, before striding."""

    name: str
    kernel: tuple[int, int]
    stride: int = 1
    dilation: int = 1
    depthwise: bool = False


class Halve(NamedTuple):
    """Two 1×1 convolutions of stride 2, one on even and one on odd places, side by side."""

    name: str


class Pool(NamedTuple):
    """3×3 pooling; averages leave the padding out."""

    kind: Literal["avg", "max"]
    stride: int


class Norm(NamedTuple):
    """A norm layer, by the network's policy."""

    name: str


Step: TypeAlias = Conv | Halve | Pool | Norm | Literal["relu"]
Program: TypeAlias = tuple[Step, ...]


def _separable(number: str, stride: int, dilation: int = 1) -> Program:
    return (
        "relu",
        Conv(f"depthwise{number}", (3, 3), stride, dilation, depthwise=True),
        Conv(f"pointwise{number}", (1, 1)),
        Norm(f"norm{number}"),
    )


def project() -> Program:
    """What a cell does to its inputs: ReLU, 1×1 convolution, norm."""
    return ("relu", Conv("pointwise", (1, 1)), Norm("norm"))


def halve() -> Program:
    """The same for an input of twice the side (and what ``skip_connect`` is where a cell reduces)."""
    return ("relu", Halve("halve"), Norm("norm"))


def stem() -> Program:
    """What stands before the first cell: 3×3 convolution, norm."""
    return (Conv("conv", (3, 3)), Norm("norm"))


def program(operator: str, stride: int, dense: bool = False) -> Program:
    """The steps of an operator; none at all is the identity."""
    if operator == "skip_connect":
        return () if stride == 1 else halve()
    if operator in ("avg_pool_3x3", "max_pool_3x3"):
        return (Pool("avg" if operator == "avg_pool_3x3" else "max", stride), Norm("norm"))
    if operator == "sep_conv_3x3":
        return _separable("0", stride) + _separable("1", 1)
    if operator == "dil_conv_3x3":
        return _separable("", stride, dilation=2)
    if operator == "conv_1x5_5x1":
        return ("relu", Conv("wide", (1, 5), stride), Conv("tall", (5, 1)), Norm("norm"))
    if dense:
        return ("relu", Conv("conv", (3, 3), stride), Norm("norm"))
    return _separable("", stride)


def kernels(steps: Program, prefix: str, n_in: int, n_out: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the convolutions' kernels by name; the number of channels changes in the last of them."""
    shapes: dict[str, tuple[int, ...]] = {}
    for step in steps:
        if isinstance(step, Conv):
            rows = n_in if step.depthwise else n_out
            shapes[f"{prefix}.{step.name}.weight"] = (rows, 1 if step.depthwise else n_in, *step.kernel)
        elif isinstance(step, Halve):
            # an odd number of channels gives the odd places one more, and a single one has no even part
            parts = {"even": n_out // 2, "odd": n_out - n_out // 2}
            for part, width in parts.items():
                if width:
                    shapes[f"{prefix}.{step.name}.{part}.weight"] = (width, n_in, 1, 1)
    return shapes


def run(
    steps: Program,
    prefix: str,
    policy: str,
    params: Params,
    buffers: Buffers,
    x: Tensor,
    statistics: Statistics,
) -> Pass:
    """The operator on ``x``, and what its norm layers saw. ``x`` is left as it is."""
    changed: Buffers = {}
    for place, step in enumerate(steps):
        if step == "relu":
            x = ops.activate(x, 0.0, fresh=place > 0)  # others read an operator's input too
        elif isinstance(step, Norm):
            x, seen = norms.kernel_norm(f"{prefix}.{step.name}", policy, params, buffers, x, statistics)
            changed.update(seen)
        elif isinstance(step, Pool):
            x = _pooled(x, step)
        elif isinstance(step, Halve):
            x = _halved(x, params, f"{prefix}.{step.name}")
        elif isinstance(step, Conv):
            x = _convolved(x, params[f"{prefix}.{step.name}.weight"], step)
    return x, changed


def _convolved(x: Tensor, weight: Tensor, step: Conv) -> Tensor:
    high, wide = (step.dilation * (side // 2) for side in step.kernel)
    groups = x.shape[1] if step.depthwise else 1
    return F.conv2d(x, weight, None, step.stride, (high, wide), step.dilation, groups)


def _pooled(x: Tensor, step: Pool) -> Tensor:
    if step.kind == "max":
        return F.max_pool2d(x, 3, step.stride, 1)
    return F.avg_pool2d(x, 3, step.stride, 1, count_include_pad=False)


def _halved(x: Tensor, params: Params, name: str) -> Tensor:
    # places are picked first: torch 2.13's backward of a 1×1 convolution of stride 2 writes past its memory
    # where fewer than eight channels stand last
    odd = F.conv2d(F.pad(x, (0, 1, 0, 1))[:, :, 1::2, 1::2], params[f"{name}.odd.weight"])
    if f"{name}.even.weight" not in params:
        return odd
    return torch.cat([F.conv2d(x[:, :, ::2, ::2], params[f"{name}.even.weight"]), odd], 1)


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
    """Where cells reduce: at a third and two thirds of the depth."""
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
    """The network that stacks cells; every reduction halves the side and doubles the channels."""
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
