r"""Inner steps of a convolutional network and its last layer as one differentiable operation of native code.

With :math:`H_t` the Hessian of the loss at step :math:`t`, rates :math:`\alpha_t` and :math:`v` the gradient
that arrives at the parameters after the last step, the chain back to those before the first is

.. math:: v \leftarrow v - H_t (\alpha_t v), \qquad \partial\alpha_t = -v \odot g_t ,

on what the steps kept (``engine.cpp``). No graph is built, and memory is that of the steps' maps.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from innerloop.core.losses import LOSSES, is_classification, rate_factor
from innerloop.core.types import Params
from innerloop.nets.network import Descent
from innerloop.nets.ops.engine import Blocks, engine


class _Steps(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in ("ways", "steps", "through", "labels", "rates")] + [
        ("scale", ctypes.c_double),
        ("lr", ctypes.c_double),
    ]


def suits(
    descent: Descent, weight: Tensor | None, bias: Tensor | None, features: int, x: Tensor, y: Tensor
) -> bool:
    """Whether native code has this loss, for this last layer and these targets."""
    loss = descent.loss
    if LOSSES.get(loss.name) is not loss or weight is None or bias is None:
        return False
    ways = len(bias)
    if weight.shape != (ways, features):
        return False
    if is_classification(loss):
        return y.dtype == torch.int64 and y.shape == x.shape[:1] and bool(((y >= 0) & (y < ways)).all())
    return y.dtype == x.dtype and y.shape == (len(x), ways)


def descend(
    blocks: Blocks,
    descent: Descent,
    x: Tensor,
    y: Tensor,
    given: Sequence[Tensor],
    params: Params,
    names: Sequence[str],
) -> Params:
    """The moving parameters after all steps.

    Args:
        blocks: the network.
        descent: which parameters take which steps.
        x: pictures, ``(n, channels, height, width)``.
        y: labels, or targets of squared errors.
        given: mean and variance of every block, for ``blocks.norm="given"``.
        params: all parameters.
        names: weight, bias, scale and shift of every block, weight and bias of the last layer, in this order.
    """
    weights = [params.get(name) for name in names]
    rates: list[Tensor | None] = [None for _ in names]
    for i, (name, value) in enumerate(zip(names, weights, strict=True)):
        if value is not None and name in descent.rates:
            rate = descent.rates[name]
            rates[i] = rate if descent.by_step else rate.expand_as(value)
    moves = [name in descent.moving for name in names]
    after = _Descend.apply(blocks, descent, x, y, moves, given, *weights, *rates)
    return {
        name: value
        for name, value, moved in zip(names, after, moves, strict=True)
        if moved and value is not None
    }


class _Descend(torch.autograd.Function):
    """``(parameters, rates) -> parameters`` after all steps."""

    @staticmethod
    def forward(
        ctx: Any,
        blocks: Blocks,
        descent: Descent,
        x: Tensor,
        y: Tensor,
        moves: Sequence[bool],
        given: Sequence[Tensor],
        *tensors: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        x, y, held = x.contiguous(), y.contiguous(), [None if t is None else t.contiguous() for t in tensors]
        params, rates = held[: len(moves)], held[len(moves) :]
        labels, ways = is_classification(descent.loss), len(params[-1]) if params[-1] is not None else 0
        total = "cross-entropy-sum" if labels else "half-sse"
        kind = 0 if not descent.rates else 1 if descent.by_step else 2
        scale = rate_factor(descent.loss.name, total, len(x))
        steps = _Steps(ways, descent.steps, descent.through, labels, kind, scale, descent.lr)
        after = [None if p is None else torch.empty_like(p) for p in params]
        sizes = (ctypes.c_int64 * len(rates))(*(0 if r is None else r.numel() for r in rates))
        keep = any(ctx.needs_input_grad)
        state = engine().call(
            "descend",
            x.dtype,
            blocks,
            ctypes.byref(steps),
            ctypes.c_int64(len(x)),
            x,
            y if labels else None,
            None if labels else y,
            [t.contiguous() for t in given],
            params,
            (ctypes.c_uint8 * len(moves))(*moves),
            rates,
            sizes,
            after,
            ctypes.c_int32(keep),
        )
        if keep:
            ctx.state, ctx.held = engine().memory("descent", x.dtype, state), held
        ctx.set_materialize_grads(False)
        return tuple(after)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *arriving: Tensor | None) -> tuple[Any, ...]:
        count, held = len(arriving), ctx.held
        wanted = [
            None if t is None or not needed else torch.empty_like(t)
            for t, needed in zip(held, ctx.needs_input_grad[6:], strict=True)
        ]
        to_params, to_rates = wanted[:count], wanted[count:]
        cotangents = [None if v is None else v.contiguous() for v in arriving]
        some = to_rates if any(t is not None for t in to_rates) else []
        dtype = next(t.dtype for t in held if t is not None)
        engine().call("ascend", dtype, ctx.state, cotangents, to_params, some)
        return None, None, None, None, None, None, *wanted
