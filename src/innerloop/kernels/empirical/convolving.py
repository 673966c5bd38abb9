"""Convolutions whose derivative by the input costs no more than the convolution itself.

torch's derivative of a dilated depthwise convolution takes ten to twenty times as long on a CPU as the
convolution. With stride one it *is* a convolution, of the derivative with the mirrored kernel. Kernels of one
place are matrix products, and where stride and dilation are equal, the places that are left out can be left
out before.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.kernels.empirical.factors import Convolution


class _Depthwise(torch.autograd.Function):
    """Stride one, as many groups as channels: the derivative is taken with the mirrored kernel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, padding: Any, dilation: Any) -> Tensor:
        """A depthwise convolution of stride 1."""
        ctx.save_for_backward(weight)
        ctx.padding, ctx.dilation = padding, dilation
        return F.conv2d(x, weight, None, 1, padding, dilation, x.shape[1])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
        """The derivative by the input: the same convolution with mirrored kernels."""
        (weight,) = ctx.saved_tensors
        reach = zip(weight.shape[2:], ctx.dilation, ctx.padding, strict=True)
        padding = [d * (k - 1) - p for k, d, p in reach]
        mirrored = weight.flip(2, 3)
        return F.conv2d(g, mirrored, None, 1, padding, ctx.dilation, g.shape[1]), None, None, None


def thinned(x: Tensor, call: Convolution) -> tuple[Tensor, Convolution]:
    """The same convolution of fewer places, where only every second one is read (or third, …).

    >>> x = torch.arange(16.0).view(1, 1, 4, 4)
    >>> call = Convolution((1, 1, 1, 1), (2, 2), (0, 0), (1, 1), 1)
    >>> thinned(x, call)[0].flatten().tolist(), thinned(x, call)[1].stride
    ([0.0, 2.0, 8.0, 10.0], (1, 1))
    """
    step, kernel = call.stride, call.shape[2:]
    axes = zip(kernel, step, call.dilation, call.padding, strict=True)
    skips = all((k == 1 and p == 0) or (s == d and p % s == 0) for k, s, d, p in axes)
    if not skips or all(s == 1 for s in step):
        return x, call
    ones = (1,) * len(step)
    padding = tuple(p // s for p, s in zip(call.padding, step, strict=True))
    every = [slice(None), slice(None), *(slice(None, None, s) for s in step)]
    return x[tuple(every)], call._replace(stride=ones, padding=padding, dilation=ones)


def is_pointwise(call: Convolution) -> bool:
    """Whether it is one matrix for all places."""
    flat = all(k == 1 for k in call.shape[2:]) and all(s == 1 for s in call.stride)
    return flat and call.groups == 1 and not any(call.padding)


def _is_mirrored(x: Tensor, call: Convolution) -> bool:
    """Whether :class:`_Depthwise` is for this convolution."""
    depthwise = x.ndim == 4 and call.groups == x.shape[1] == call.shape[0]
    reach = zip(call.shape[2:], call.dilation, call.padding, strict=True)
    return depthwise and set(call.stride) == {1} and all(d * (k - 1) >= p for k, d, p in reach)


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, call: Convolution) -> Tensor:
    """The convolution of ``x``, through which derivatives by ``x`` flow, and by nothing else."""
    if x.device.type == "cpu" and is_pointwise(call) and x.ndim == 4:
        matrix = weight.reshape(1, *call.shape[:2]).expand(len(x), -1, -1)
        y = torch.bmm(matrix, x.flatten(2)).view(len(x), call.shape[0], *x.shape[2:])
    elif x.device.type == "cpu" and _is_mirrored(x, call):
        y = _Depthwise.apply(x, weight, call.padding, call.dilation)
    else:
        run = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[x.ndim]
        return run(x, weight, bias, call.stride, call.padding, call.dilation, call.groups)
    return y if bias is None else y + bias.view(1, -1, 1, 1)
