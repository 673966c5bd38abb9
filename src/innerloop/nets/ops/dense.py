r"""Features and inner steps of a fully connected network on all tasks of a batch, as operations of autograd.

``dense.cpp`` computes them, a lane of a vector for each task. Features, which have one derivative, are what
queries need. Backwards through steps, with :math:`H_t` the Hessian of the
loss at step :math:`t`, :math:`v \leftarrow v - \alpha H_t v` from the last step to the first. Under ``vmap``
one call does all tasks; both are operations of torch's dispatcher, so that a captured graph has them.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from innerloop.core.autodiff import has_native_batches
from innerloop.core.losses import LOSSES, is_classification, rate_factor
from innerloop.core.types import Params
from innerloop.nets.network import Descent
from innerloop.nets.ops.engine import engine

How = tuple[list[int], int, int, bool, float, float, float]
"""Widths, steps, those differentiated through, whether targets are labels; rate, factor of loss, slope."""


class _Steps(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("tasks", "samples", "layers", "steps")),
        *((name, ctypes.c_int64) for name in ("through", "labels", "threads")),
        *((name, ctypes.c_double) for name in ("lr", "scale", "slope")),
    ]


def _call(name: str, x: Tensor, how: Sequence[Any], *arguments: Any) -> int:
    sizes, steps, through, labels, *numbers = how
    threads = torch.get_num_threads()
    about = _Steps(len(x), x.shape[1], len(sizes) - 1, steps, through, labels, threads, *numbers)
    widths = (ctypes.c_int64 * len(sizes))(*sizes)
    return engine().call(f"dense_{name}", x.dtype, ctypes.byref(about), widths, *arguments) or 0


def _forward(params: Tensor, x: Tensor, y: Tensor, *how: Any) -> tuple[Tensor, Tensor]:
    params, x, y = params.contiguous(), x.contiguous(), y.contiguous()
    adapted, tape = x.new_empty(len(x), len(params)), x.new_empty(_call("tape", x, how))
    _call("forward", x, how, params, x, y, adapted, tape)
    return adapted, tape


def _backward(x: Tensor, tape: Tensor, arriving: Tensor, *how: Any) -> Tensor:
    arriving = arriving.contiguous()
    each, out = torch.empty_like(arriving), arriving.new_empty(arriving.shape[1])
    _call("backward", x, how, x.contiguous(), tape, arriving, each, out)
    return out


def _features(params: Sequence[Tensor], x: Tensor, sizes: list[int], slope: float) -> tuple[Tensor, Tensor]:
    how, x = (sizes, 1, 0, False, 0.0, 0.0, slope), x.contiguous()
    held = [p if p[0].is_contiguous() else p.contiguous() for p in params]
    rows = (ctypes.c_int64 * len(held))(*(p.stride(0) for p in held))
    out, tape = x.new_empty(*x.shape[:2], sizes[-1]), x.new_empty(_call("tape", x, how))
    _call("features", x, how, held, rows, x, out, tape)
    return out, tape


def _features_backward(x: Tensor, tape: Tensor, arriving: Tensor, sizes: list[int], slope: float) -> Tensor:
    out = x.new_empty(len(x), sum((before + 1) * after for before, after in itertools.pairwise(sizes)))
    _call("pull", x, (sizes, 1, 0, False, 0.0, 0.0, slope), x.contiguous(), tape, arriving.contiguous(), out)
    return out


_HOW = "int[] sizes, int steps, int through, bool labels, float lr, float scale, float slope"
_LIBRARY = torch.library.Library("innerloop", "FRAGMENT")
_LIBRARY.define(f"dense_forward(Tensor params, Tensor x, Tensor y, {_HOW}) -> (Tensor, Tensor)")
_LIBRARY.define(f"dense_backward(Tensor x, Tensor tape, Tensor arriving, {_HOW}) -> Tensor")
_LIBRARY.define("dense_features(Tensor[] params, Tensor x, int[] sizes, float slope) -> (Tensor, Tensor)")
_LIBRARY.define(
    "dense_features_backward(Tensor x, Tensor tape, Tensor arriving, int[] sizes, float slope) -> Tensor"
)
_LIBRARY.impl("dense_forward", _forward, "CPU")
_LIBRARY.impl("dense_features", _features, "CPU")
_LIBRARY.impl("dense_features_backward", _features_backward, "CPU")
_LIBRARY.impl("dense_backward", _backward, "CPU")


def suits(descent: Descent, names: Sequence[str], outputs: int, x: Tensor, y: Tensor) -> bool:
    """Whether all of these parameters take plain steps on a loss that native code has, on such data."""
    loss = descent.loss
    if not has_native_batches() or LOSSES.get(loss.name) is not loss or descent.rates:
        return False
    if set(descent.moving) != set(names) or x.device.type != "cpu":
        return False
    shape, dtype = ((len(x),), torch.int64) if is_classification(loss) else ((len(x), outputs), x.dtype)
    return x.dtype in (torch.float32, torch.float64) and y.shape == shape and y.dtype == dtype


def descend(
    descent: Descent, sizes: Sequence[int], slope: float, x: Tensor, y: Tensor, params: Params
) -> Params:
    """The parameters of one task after all steps; under ``vmap`` those of every task.

    Args:
        descent: the steps.
        sizes: widths from the inputs to the outputs.
        slope: of the activation below zero.
        x: inputs, ``(n, d)``.
        y: labels ``(n,)``, or targets ``(n, k)`` of squared errors.
        params: weight and bias of every layer, in order.
    """
    labels = is_classification(descent.loss)
    scale = rate_factor(descent.loss.name, "cross-entropy-sum" if labels else "half-sse", len(x))
    targets = (y[:, None] == torch.arange(sizes[-1])).to(x) if labels else y
    how: How = (list(sizes), descent.steps, descent.through, labels, descent.lr, scale, slope)
    flat = torch.cat([value.flatten() for value in params.values()])
    adapted = _Tasks.apply(flat, x[None], targets[None], how)[0].squeeze(0)
    after = adapted.split([value.numel() for value in params.values()])
    return {name: new.view(old.shape) for (name, old), new in zip(params.items(), after, strict=True)}


class _Tasks(torch.autograd.Function):
    """``(parameters, x, targets) -> (adapted parameters of every task, tape)``, tasks first."""

    @staticmethod
    def forward(params: Tensor, x: Tensor, y: Tensor, how: How) -> tuple[Tensor, Tensor]:
        """Calls native code."""
        adapted, tape = torch.ops.innerloop.dense_forward(params, x, y, *how)
        return adapted, tape

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keeps the tape."""
        ctx.how = inputs[3]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(inputs[1], output[1])

    @staticmethod
    def backward(ctx: Any, arriving: Tensor, _: Any) -> tuple[Any, ...]:
        """The gradient in the parameters, summed over tasks in their order."""
        x, tape = ctx.saved_tensors
        return torch.ops.innerloop.dense_backward(x, tape, arriving, *ctx.how), None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], params: Tensor, x: Tensor, y: Tensor, how: How
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int | None]]:
        """All tasks at once, where they share the parameters that they start from."""
        size = info.batch_size
        x, y = (
            t.expand(size, *t.shape) if dim is None else t.movedim(dim, 0)
            for t, dim in zip((x, y), in_dims[1:3], strict=True)
        )
        if in_dims[0] is None:
            adapted, tape = _Tasks.apply(params, x.flatten(0, 1), y.flatten(0, 1), how)
            return (adapted.unflatten(0, (size, -1)), tape), (0, None)
        each = [
            _Tasks.apply(p, *one, how) for p, *one in zip(params.movedim(in_dims[0], 0), x, y, strict=True)
        ]
        return (torch.stack([one[0] for one in each]), torch.stack([one[1] for one in each])), (0, 0)


def features(params: Params, sizes: Sequence[int], slope: float, x: Tensor) -> Tensor:
    """The last hidden layer of one task; under ``vmap`` of every task.

    Args:
        params: weight and bias of every hidden layer, in order.
        sizes: widths from the inputs to the last hidden layer.
        slope: of the activation below zero.
        x: inputs, ``(n, d)``.
    """
    each = (value[None] for value in params.values())
    out: Tensor = _TaskFeatures.apply(x[None], list(sizes), slope, *each)[0].squeeze(0)
    return out


def has_features(params: Mapping[str, Tensor], x: Tensor) -> bool:
    """Whether native code computes features of such inputs here."""
    kinds = {x.dtype, *(value.dtype for value in params.values())}
    return has_native_batches() and x.device.type == "cpu" and kinds in ({torch.float32}, {torch.float64})


class _TaskFeatures(torch.autograd.Function):
    """``(x, …, parameters) -> (features, tape)``, tasks first."""

    @staticmethod
    def forward(x: Tensor, sizes: list[int], slope: float, *params: Tensor) -> tuple[Tensor, Tensor]:
        """Calls native code."""
        out, tape = torch.ops.innerloop.dense_features(params, x, sizes, slope)
        return out, tape

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keeps the tape."""
        x, *ctx.how = inputs[:3]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, output[1])

    @staticmethod
    def backward(ctx: Any, arriving: Tensor, _: Any) -> tuple[Any, ...]:
        """The gradients in the parameters of every task."""
        sizes, slope = ctx.how
        found = torch.ops.innerloop.dense_features_backward(*ctx.saved_tensors, arriving, sizes, slope)
        shapes = [shape for n, m in itertools.pairwise(sizes) for shape in ((m, n), (m,))]
        parts = found.split([math.prod(shape) for shape in shapes], 1)
        grads = (part.unflatten(1, shape) for part, shape in zip(parts, shapes, strict=True))
        return None, None, None, *grads

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], x: Tensor, sizes: list[int], slope: float, *params: Tensor
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, None]]:
        """All tasks at once."""
        size = info.batch_size
        x, *each = (
            (t.expand(size, *t.shape) if dim is None else t.movedim(dim, 0)).flatten(0, 1)
            for t, dim in zip((x, *params), (in_dims[0], *in_dims[3:]), strict=True)
        )
        out, tape = _TaskFeatures.apply(x, sizes, slope, *each)
        return (out.unflatten(0, (size, -1)), tape), (0, None)
