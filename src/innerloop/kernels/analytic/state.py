"""What an analytic kernel carries from layer to layer, and how inputs become it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from innerloop.core.errors import UserError

Pixels: TypeAlias = Literal["none", "diagonal", "full"]
"""Which pairs of pixels are carried: vectors have none; flattening needs equal places, pooling needs all."""

_INT = {torch.float64: torch.int64, torch.float32: torch.int32, torch.bfloat16: torch.int16}


class State(NamedTuple):
    """Covariances between two sets of inputs at one layer of an infinitely wide network.

    Attributes:
        nngp: ``(n, m)`` for vectors; ``(n, m, H, W)`` for pictures at equal places, ``(n, m, H, W, H, W)``
            at all pairs of places.
        ntk: the tangent kernel, of the same shape.
        var1: variances of the first inputs, ``(n,)`` or ``(n, H, W)``; None after pooling, where they are
            not known.
        var2: variances of the second.
        same: ``(n, m)`` bool, where both inputs are equal bit for bit: there the angle is exactly zero, which
            rounding would not give (an error of 1e-16 in a cosine near one is 1e-8 in the angle).
    """

    nngp: Tensor
    ntk: Tensor
    var1: Tensor | None
    var2: Tensor | None
    same: Tensor


class Layer(NamedTuple):
    """One layer of an infinitely wide network.

    Attributes:
        apply: how it changes the covariances.
        pixels: which pairs of pixels it needs before it.
    """

    apply: Callable[[State], State]
    pixels: Pixels = "none"


def over_pairs(a: Tensor, b: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """Views of values per input (and pixel) that broadcast to the pairs in ``like``."""
    if like.ndim == 6:
        return a[:, None, :, :, None, None], b[None, :, None, None, :, :]
    return a[:, None], b[None]


def same_pairs(state: State) -> Tensor:
    """Where the angle is known to be zero: the same input, at the same pixel."""
    if state.nngp.ndim == 2:
        return state.same
    if state.nngp.ndim == 4:
        return state.same[:, :, None, None]
    high, wide = state.nngp.shape[2:4]
    eye = torch.eye(high * wide, dtype=torch.bool, device=state.same.device)
    return state.same[:, :, None, None, None, None] & eye.view(high, wide, high, wide)


def variances(state: State) -> tuple[Tensor, Tensor]:
    """Both inputs' variances."""
    if state.var1 is None or state.var2 is None:
        raise UserError(
            "only dense layers may follow global average pooling: put the activation before the pooling."
        )
    return state.var1, state.var2


def initial_state(x1: Tensor, x2: Tensor, pixels: Pixels) -> State:
    """The inputs' own covariances: inner products over features or channels, divided by their number."""
    same = identical(x1, x2)
    if pixels == "none":
        x1, x2 = x1.flatten(1), x2.flatten(1)
        if x1.shape[1] != x2.shape[1]:
            raise UserError(f"inputs of {x1.shape[1]} and {x2.shape[1]} features: give both the same number.")
        nngp = x1 @ x2.mT / x1.shape[1]
        return State(nngp, torch.zeros_like(nngp), x1.square().mean(1), x2.square().mean(1), same)
    if x1.ndim != 4 or x1.shape[1:] != x2.shape[1:]:
        raise UserError(
            f"a convolutional kernel of inputs {tuple(x1.shape)} and {tuple(x2.shape)}: give pictures of one "
            "size as (samples, channels, height, width)."
        )
    if pixels == "diagonal":
        nngp = torch.einsum("nchw,mchw->nmhw", x1, x2) / x1.shape[1]
    else:
        nngp = torch.einsum("nchw,mcij->nmhwij", x1, x2) / x1.shape[1]
    return State(nngp, torch.zeros_like(nngp), x1.square().mean(1), x2.square().mean(1), same)


def identical(x1: Tensor, x2: Tensor) -> Tensor:
    """Which pairs of inputs are equal bit for bit, ``(n, m)``: by a 64-bit hash of every input."""
    first = _hash(x1)
    return first[:, None] == (first if x2 is x1 else _hash(x2))[None]


def _hash(x: Tensor) -> Tensor:
    """Integer sums wrap around and do not depend on their order, so equal inputs have equal hashes."""
    if x.dtype not in _INT:
        raise UserError(f"inputs of type {x.dtype}: kernels take float32 or float64.")
    x = x.detach().flatten(1) + 0.0  # minus zero becomes zero
    bits = _Bits.apply(x).to(torch.int64)
    place = torch.arange(1, x.shape[1] + 1, device=x.device) * -7046029254386353131
    return _mix(_mix(bits) + place).sum(1)


class _Bits(torch.autograd.Function):
    """Floats as the integers that have their bits; torch 2.6 cannot map ``view`` over tasks itself."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        """The integers."""
        return x.view(_INT[x.dtype])

    @staticmethod
    def setup_context(ctx: Any, _inputs: tuple[Tensor], output: Tensor) -> None:
        """Integers have no derivative."""
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(_info: Any, in_dims: tuple[int], x: Tensor) -> tuple[Tensor, int]:
        """All tasks at once: every number stays in its place."""
        return _Bits.apply(x), in_dims[0]


def _mix(z: Tensor) -> Tensor:
    """SplitMix64's finaliser: every bit of the result depends on every bit given."""
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return z ^ ((z >> 31) & 0x1FFFFFFFF)
