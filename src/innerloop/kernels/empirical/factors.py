r"""A layer's part of the tangent kernel from what enters it and what comes back, without Jacobians.

A layer :math:`y_t = W u_t + b` that is applied at places t (pixels of a convolution, one for a vector) has
the per-sample gradient :math:`\sum_t d_t u_t^\top`, d being the derivative of the output by y. So

.. math:: \langle\nabla_W f(x), \nabla_W f(x')\rangle = \sum_{t,t'} (u_t\cdot u'_{t'})(d_t\cdot d'_{t'}),

which for one place is the product of two Gram matrices, entry by entry. Where there are many places, it is
cheaper to form the gradients of this one layer; the operations of both ways are counted and the fewer taken.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv1d_weight, conv2d_weight, conv3d_weight

WORK_BYTES = 2**24  # about the size of a temporary: larger ones leave the cache

_ONEDNN: Any = (
    getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkl.is_available() else None
)
_ONEDNN_FROM = 2**21  # multiplications; below, the call itself counts

_WEIGHT = {1: conv1d_weight, 2: conv2d_weight, 3: conv3d_weight}


def onednn_pays(a: Tensor, b: Tensor) -> bool:
    """Whether the product is oneDNN's: in float32 it has twice MKL's rate on an AMD EPYC."""
    large = a.shape[0] * b.numel() >= _ONEDNN_FROM
    return large and a.dtype == b.dtype == torch.float32 and a.device.type == "cpu" and _ONEDNN is not None


def times_transposed(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """``a bᵀ + bias`` of matrices, outside of autograd."""
    return _ONEDNN(a, b, bias, "none", [], "") if onednn_pays(a, b) else F.linear(a, b, bias)


class ConvolutionCall(NamedTuple):
    """How a convolution was called, and the shape of its weight."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


class Factor(NamedTuple):
    """What one layer contributes for ``n`` samples and ``R`` rows (outputs, or their sum)."""

    inputs: Tensor | None
    grads: Tensor
    conv: ConvolutionCall | None = None
    weight: float = 1.0
    bias: float | None = None


def sizes(f: Factor) -> tuple[int, int, int]:
    """Places, inputs per place and outputs per place."""
    assert f.inputs is not None
    if f.conv is None:
        return f.grads.shape[2], f.inputs.shape[2], f.grads.shape[3]
    taps = int(torch.Size(f.conv.shape[1:]).numel())
    return f.grads[0, 0, 0].numel(), taps, f.conv.shape[0]


def kept_bytes(f: Factor) -> int:
    """What :func:`compact` will keep of this factor."""
    if f.inputs is None:
        return f.grads.nbytes
    made = len(f.grads) * f.grads.shape[1] * _parameters(f) * f.grads.element_size()
    return min(made, f.inputs.nbytes + f.grads.nbytes)


def _parameters(f: Factor) -> int:
    """Of the layer, per sample and row."""
    _, p, o = sizes(f)
    return p * o + (0 if f.bias is None else o)


def compact(f: Factor) -> Factor:
    """Whichever is smaller to keep: inputs and derivatives, or the gradients that they make."""
    if f.inputs is None:
        return f
    return gradients(f) if kept_bytes(f) < f.inputs.nbytes + f.grads.nbytes else f


def room(f: Factor, samples: int) -> Factor:
    """Room for the factor of this many samples."""
    inputs = None if f.inputs is None else f.inputs.new_empty(samples, *f.inputs.shape[1:])
    return f._replace(inputs=inputs, grads=f.grads.new_empty(len(f.grads), samples, *f.grads.shape[2:]))


def put(whole: Factor, part: slice, f: Factor) -> None:
    """Writes the factor of some samples to its place."""
    whole.grads[:, part] = f.grads
    if whole.inputs is not None and f.inputs is not None:
        whole.inputs[part] = f.inputs


def gradients(f: Factor) -> Factor:
    """The per-sample gradients of this layer, ``(R, n, parameters)``."""
    if f.inputs is None:
        return f
    by_sample = _weight_gradients(f, 0, sizes(f)[2])
    by_sample = by_sample if f.weight == 1 else by_sample * f.weight
    return Factor(None, by_sample if f.bias is None else torch.cat([by_sample, f.grads.sum(2) * f.bias], 2))


def _weight_gradients(f: Factor, start: int, stop: int) -> Tensor:
    """Gradients of the weights of outputs ``start`` to ``stop``, ``(R, n, outputs · p)``."""
    assert f.inputs is not None
    if f.conv is None:
        return torch.matmul(f.grads[..., start:stop].mT, f.inputs).flatten(2)
    by_row = [_conv_gradients(f.conv, f.inputs, d[:, start:stop]) for d in f.grads]
    return by_row[0][None] if len(by_row) == 1 else torch.stack(by_row)


def _conv_gradients(conv: ConvolutionCall, x: Tensor, d: Tensor) -> Tensor:
    """One convolution with a group of channels per sample gives all samples' gradients."""
    n, outputs = d.shape[:2]
    if d.ndim == 4 and math.prod(conv.shape[2:]) == 1 and conv.groups == 1 and x.shape[2:] == d.shape[2:]:
        return torch.bmm(d.flatten(2), x.flatten(2).mT).flatten(1)
    if phases_fit(conv, x):
        return _by_phases(conv, x, d)
    shape = (n * outputs, *conv.shape[1:])
    by_sample = _WEIGHT[d.ndim - 2](
        x.reshape(1, -1, *x.shape[2:]),
        shape,
        d.reshape(1, -1, *d.shape[2:]),
        conv.stride,
        conv.padding,
        conv.dilation,
        n * conv.groups,
    )
    return by_sample.view(n, -1)


def phases_fit(conv: ConvolutionCall, x: Tensor) -> bool:
    """Whether a dilated depthwise convolution is several plain ones, of every second place (or third, …)."""
    q = conv.dilation[0]
    if x.ndim != 4 or q == 1 or set(conv.dilation) != {q} or set(conv.stride) != {1}:
        return False
    whole = all(side % q == 0 for side in (*x.shape[2:], *conv.padding))
    # both must have the same places
    same = all(q * (k - 1) == 2 * p for k, p in zip(conv.shape[2:], conv.padding, strict=True))
    return whole and same and conv.groups == x.shape[1] == conv.shape[0]


def _by_phases(conv: ConvolutionCall, x: Tensor, d: Tensor) -> Tensor:
    """Torch takes ten times as long for the gradient of a dilated depthwise kernel as for a plain one's."""
    (n, channels), q = d.shape[:2], conv.dilation[0]

    def phases(z: Tensor) -> Tensor:
        """Every ``q``-th pixel apart, as channels of their own."""
        high, wide = z.shape[2] // q, z.shape[3] // q
        apart = z.reshape(n * channels, high, q, wide, q).permute(0, 2, 4, 1, 3)
        return apart.reshape(1, -1, high, wide)

    count = n * channels * q * q
    padding = [p // q for p in conv.padding]
    by_phase = conv2d_weight(phases(x), (count, 1, *conv.shape[2:]), phases(d), 1, padding, 1, count)
    return by_phase.view(n, channels, q * q, -1).sum(2).flatten(1)


def gram(
    f: Factor, split: int | None = None, number: int = 0, known: dict[int, Tensor] | None = None
) -> Tensor:
    """This layer's part of Θ, ``(R, n, R, m)``: of all samples, or of the first ``split`` and the others.

    ``known`` keeps inputs' Grams by layer for the next backward pass, where they are no larger than inputs.
    """
    a, b = (f, f) if split is None else (_part(f, slice(split)), _part(f, slice(split, None)))
    if a.inputs is None:
        return _product(a.grads, b.grads)
    if a.conv is None and a.grads.shape[2] == 1:
        inputs = _of_inputs(a, b) if known is None or number not in known else known[number]
        if known is not None and inputs.shape[1] <= a.inputs.shape[2]:
            known[number] = inputs
        return _product(a.grads[:, :, 0], b.grads[:, :, 0]).mul_(inputs[:, None])
    return (_by_places if places_pay(a, b) else _by_gradients)(a, b) * f.weight**2


def _part(f: Factor, part: slice) -> Factor:
    return f._replace(inputs=None if f.inputs is None else f.inputs[part], grads=f.grads[:, part])


def _product(a: Tensor, b: Tensor) -> Tensor:
    return times_transposed(a.flatten(0, 1), b.flatten(0, 1)).view(*a.shape[:2], *b.shape[:2])


def _of_inputs(a: Factor, b: Factor) -> Tensor:
    """The first Gram of Θ = (σ² A Aᵀ + σ_b²) ∘ D Dᵀ, for one place."""
    assert a.inputs is not None
    assert b.inputs is not None
    inputs = times_transposed(a.inputs[:, 0], b.inputs[:, 0])
    inputs = inputs.mul_(a.weight**2) if a.weight != 1 else inputs
    return inputs.add_(a.bias**2) if a.bias is not None else inputs


def places_pay(a: Factor, b: Factor) -> bool:
    """Whether pairs of places take fewer operations than gradients; entry-wise products count fourfold."""
    if a.conv is not None and (len(a.conv.shape) != 4 or a.conv.groups != 1):
        return False
    t, p, o = sizes(a)
    rows, n, m = len(a.grads), a.grads.shape[1], b.grads.shape[1]
    by_places = n * m * t * t * (p + rows * rows * (o + 4))
    samples = n if a is b else n + m
    return by_places < samples * rows * t * o * p + n * m * rows * rows * o * p


def _by_gradients(a: Factor, b: Factor) -> Tensor:
    """Gradients of a few outputs at a time, and their Gram."""
    _, p, o = sizes(a)
    rows, n, m = len(a.grads), a.grads.shape[1], b.grads.shape[1]
    per_output = rows * max(n, m) * p * a.grads.element_size()
    step = o if a.conv is not None and a.conv.groups != 1 else max(1, min(o, WORK_BYTES // per_output))
    total: Tensor | None = None
    for start in range(0, o, step):
        left = _weight_gradients(a, start, min(o, start + step))
        right = left if a is b else _weight_gradients(b, start, min(o, start + step))
        part = _product(left, right)
        total = part if total is None else total.add_(part)
    assert total is not None
    return total


def _places(f: Factor) -> tuple[Tensor, Tensor]:
    """``(n, places, p)`` and ``(R, n, places, o)``; a convolution's inputs are laid out as patches."""
    assert f.inputs is not None
    if f.conv is None:
        return f.inputs, f.grads
    c = f.conv
    patches = F.unfold(f.inputs, c.shape[2:], c.dilation, c.padding, c.stride)
    return patches.mT, f.grads.flatten(3).mT


def _by_places(a: Factor, b: Factor) -> Tensor:
    """Inner products between all places of a few samples and all places of the others."""
    u, d = _places(a)
    v, e = (u, d) if a is b else _places(b)
    t, n, m, rows = u.shape[1], len(u), len(v), len(d)
    step = max(1, min(n, WORK_BYTES // (m * t * t * u.element_size())))
    columns, out = v.flatten(0, 1).mT, d.new_empty(rows, n, rows, m)
    for i in range(0, n, step):
        inputs = u[i : i + step].flatten(0, 1) @ columns
        for r in range(rows):
            left = d[r, i : i + step].flatten(0, 1)
            for s in range(rows):
                both = (left @ e[s].flatten(0, 1).mT).mul_(inputs)
                out[r, i : i + step, s] = both.view(-1, t, m, t).sum((1, 3))
    return out
