"""Layers, each by the fastest way that is right where it is called: the one place that chooses.

Under ``torch.func`` layers are made of primitives, which can be batched over tasks and differentiated twice
(:mod:`~innerloop.nets.ops.reference`). Where tasks run one at a time by plain autograd
(:func:`innerloop.core.autodiff.is_plain`), other ways give the same numbers in less time: torch's own kernels
on channels-last images, whole blocks as one operation (:mod:`~innerloop.nets.ops.fused`, on
:mod:`~innerloop.nets.ops.patches`), and wide 3×3 convolutions by :mod:`~innerloop.nets.ops.winograd`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

import innerloop.nets.ops.fused as fused
import innerloop.nets.ops.reference as reference
from innerloop.core.autodiff import is_native, is_plain, is_untransformed
from innerloop.nets.ops.winograd import conv3x3

KERNEL_GROUP = 16  # values per group from which torch's own group normalisation is used, outside ``vmap``

# below these the transforms cost more than the multiplications they save (measured; docs/backbones.md)
WINOGRAD_CHANNELS, WINOGRAD_TILES = 64, 32
UNSAFE_CHANNELS = 8
"""Below this many channels, standing last, torch 2.13's backward of a strided 1×1 convolution writes past its
memory: places are picked first."""


def layout(x: Tensor) -> Tensor:
    """Channels last under plain autograd; elsewhere as it comes."""
    return x.contiguous(memory_format=torch.channels_last) if is_plain() else x


def native_suits(x: Tensor, weight: Tensor) -> bool:
    """Whether native code may compute the features of a whole network."""
    # not where saved tensors are watched: inner steps that are computed again would keep their memory
    if not is_native() or not fused.suits(x, weight) or torch.is_autocast_enabled("cpu"):
        return False
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def conv2d(x: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
    """Convolution without bias; odd kernels keep the size of the map (before striding)."""
    padding = weight.shape[-1] // 2
    if stride > 1 and padding == 0 and x.shape[1] < UNSAFE_CHANNELS:
        x, stride = x[:, :, ::stride, ::stride], 1  # what a 1×1 kernel sees of it
    if not is_plain():
        return F.conv2d(x, weight, None, stride, padding)
    if stride == 1 and winograd_pays(x, weight):
        return conv3x3(x, weight)
    return F.conv2d(x, weight, stride=stride, padding=padding)


def winograd_pays(x: Tensor, weight: Tensor) -> bool:
    """Whether a stride-1 convolution is faster as 36 matrix products."""
    if weight.shape[-2:] != (3, 3) or x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return False
    if x.dtype != weight.dtype or x.dtype not in (torch.float32, torch.float64):
        return False
    if min(weight.shape[:2]) < WINOGRAD_CHANNELS:
        return False
    n, _, height, width = x.shape
    tiles = n * -(-height // 4) * -(-width // 4)
    return tiles >= WINOGRAD_TILES and 16 * tiles <= 2 * n * height * width


def conv_norm_relu(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale: Tensor,
    shift: Tensor,
    eps: float,
    stride: int,
    padding: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """``relu(batch_norm(conv2d(x)))``; mean and variance are for running averages, not for gradients."""
    # the convolution's bias moves the mean only: normalisation takes it out again, its gradient is zero
    if is_plain() and fused.suits(x, weight):
        y, mean, var = fused.conv_norm_relu(x, weight, scale, shift, eps, stride, padding)
        return y, mean if bias is None else mean + bias.detach(), var
    y, mean, var = reference.batch_norm(F.conv2d(x, weight, bias, stride, padding), scale, shift, eps)
    return F.relu(y), mean.detach(), var.detach()


def group_norm(x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """By torch's kernel where that is right; of groups of one value its derivatives are noise."""
    if is_untransformed() and x[0].numel() >= groups * KERNEL_GROUP:
        return F.group_norm(x, groups, weight, bias, eps)
    return reference.group_norm(x, groups, weight, bias, eps)


def norm_kernels_suit(policy: str, batch: bool, x: Tensor) -> bool:
    """Whether torch's own normalisations may take the place of primitives."""
    # not under ``torch.func``, for stored statistics (gradients may flow through them), for ``support``
    # (they are handed on with their graph), and for a single value per channel
    forward_only = is_untransformed() and not torch.is_grad_enabled()  # patterns are counted that way
    suits = ((batch or policy == "group") and is_plain()) or (batch and forward_only and x.ndim == 4)
    return suits and x.numel() != x.shape[1]


def activate(x: Tensor, slope: float, fresh: bool = True) -> Tensor:
    """ReLU, or leaky ReLU for a slope above zero."""
    over = fresh and is_plain()
    return F.leaky_relu(x, slope, inplace=over) if slope else F.relu(x, inplace=over)


def pooled(x: Tensor) -> Tensor:
    """Global average pooling; features of bfloat16 maps come out in float32."""
    return at_least_float32(x).mean((2, 3))


def flattened(x: Tensor) -> Tensor:
    """All values of the maps, channel by channel; those of bfloat16 maps come out in float32."""
    return at_least_float32(x).flatten(1)


def at_least_float32(x: Tensor) -> Tensor:
    """bfloat16 becomes float32; all else is left as it is."""
    return x.float() if x.dtype == torch.bfloat16 else x


def add(x: Tensor, y: Tensor) -> Tensor:
    """``x + y``; plain autograd writes it over ``x``, which nobody else may hold."""
    return x.add_(y) if is_plain() else x + y
