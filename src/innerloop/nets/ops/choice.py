"""Layers of the large backbones, by whichever of two ways is right where they are called.

Under ``torch.func`` they are made of primitives that can be batched over tasks and differentiated twice.
Where tasks run one at a time by plain autograd (:func:`innerloop.core.autodiff.is_plain`), torch's fused
kernels give the same numbers in less time, images are kept channels-last, and wide 3×3 convolutions of
float32 go through :mod:`innerloop.nets.ops.winograd`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

import innerloop.nets.norms as norms
import innerloop.nets.ops.reference as primitives
from innerloop.core.autodiff import is_plain, is_untransformed
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets.ops.winograd import conv3x3

# below these the transforms cost more than the multiplications they save (measured; docs/backbones.md)
WINOGRAD_CHANNELS, WINOGRAD_TILES = 64, 32
UNSAFE_CHANNELS = 8
"""Below so many channels, standing last, torch 2.13's backward of a strided 1×1 convolution writes past its
memory: places are picked first."""


def layout(x: Tensor) -> Tensor:
    """Channels last under plain autograd; elsewhere as it comes."""
    return x.contiguous(memory_format=torch.channels_last) if is_plain() else x


def conv2d(x: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
    """Convolution without bias; odd kernels keep the size of the map (before striding)."""
    padding = weight.shape[-1] // 2
    if stride > 1 and padding == 0 and x.shape[1] < UNSAFE_CHANNELS:
        x, stride = x[:, :, ::stride, ::stride], 1  # what a 1×1 kernel sees of it
    if not is_plain():
        return primitives.conv2d(x, weight, None, stride, padding)
    if stride == 1 and winograd_pays(x, weight):
        return conv3x3(x, weight)
    return F.conv2d(x, weight, stride=stride, padding=padding)


def winograd_pays(x: Tensor, weight: Tensor) -> bool:
    """Whether a stride-1 convolution is faster as 36 matrix products.

    >>> x, weight = torch.zeros(64, 160, 16, 16), torch.zeros(160, 160, 3, 3)
    >>> winograd_pays(x, weight), winograd_pays(x[:1], weight), winograd_pays(x, weight[..., :1, :1])
    (True, False, False)
    """
    if weight.shape[-2:] != (3, 3) or x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return False
    if x.dtype != weight.dtype or x.dtype not in (torch.float32, torch.float64):
        return False
    if min(weight.shape[:2]) < WINOGRAD_CHANNELS:
        return False
    n, _, height, width = x.shape
    tiles = n * -(-height // 4) * -(-width // 4)
    return tiles >= WINOGRAD_TILES and 16 * tiles <= 2 * n * height * width


def norm(
    name: str, policy: str, params: Params, buffers: Buffers, x: Tensor, statistics: Statistics
) -> tuple[Tensor, Buffers]:
    """As :func:`innerloop.nets.norms.norm`, which it calls wherever torch's own kernel would not do.

    That is: under ``torch.func``; for stored statistics, through which gradients may flow; for the policy
    ``support``, whose statistics are handed on with their graph; and for a single value per channel.
    Statistics of bfloat16 values are taken in float32.
    """
    batch = policy == "transductive" or (policy == "running" and statistics == "batch")
    own = batch and _forward_only() and x.ndim == 4
    if not (((batch or policy == "group") and is_plain()) or own) or x.numel() == x.shape[1]:
        y, changed = norms.norm(name, policy, params, buffers, _at_least_float32(x), statistics)
        return y.to(x.dtype), changed
    weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]
    if policy == "group":
        return F.group_norm(x, norms.groups_for(x.shape[1]), weight, bias, norms.EPS), {}
    if policy == "transductive":
        return F.batch_norm(x, None, None, weight, bias, training=True, eps=norms.EPS), {}
    # torch updates running statistics in place, so it is given copies
    mean, var = buffers[f"{name}.mean"].clone(), buffers[f"{name}.var"].clone()
    y = F.batch_norm(x, mean, var, weight, bias, True, norms.MOMENTUM, norms.EPS)
    return y, {f"{name}.mean": mean, f"{name}.var": var}


def _forward_only() -> bool:
    """Whether nobody will differentiate, and no transform is in force: patterns are counted that way."""
    return is_untransformed() and not torch.is_grad_enabled()


def activate(x: Tensor, slope: float, fresh: bool = True) -> Tensor:
    """ReLU, or leaky ReLU for a slope above zero.

    Args:
        x: what to activate.
        slope: of the negative side.
        fresh: whether nobody else holds ``x``, so that plain autograd may write the result over it.
    """
    over = fresh and is_plain()
    return F.leaky_relu(x, slope, inplace=over) if slope else F.relu(x, inplace=over)


def pooled(x: Tensor) -> Tensor:
    """Global average pooling; features of bfloat16 maps come out in float32."""
    return _at_least_float32(x).mean((2, 3))


def flattened(x: Tensor) -> Tensor:
    """All values of the maps, channel by channel; those of bfloat16 maps come out in float32."""
    return _at_least_float32(x).flatten(1)


def _at_least_float32(x: Tensor) -> Tensor:
    return x.float() if x.dtype == torch.bfloat16 else x


def add(x: Tensor, y: Tensor) -> Tensor:
    """``x + y``; plain autograd writes it over ``x``, which nobody else may hold."""
    return x.add_(y) if is_plain() else x + y
