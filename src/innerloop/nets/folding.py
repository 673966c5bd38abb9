r"""Frozen EfficientNet-Lite for computing features: norm layers folded away, nothing padded by copying.

With stored statistics a norm layer is :math:`y = w(z-\mu)/\sqrt{\sigma^2+\epsilon} + b` on
:math:`z = K * x`, which is one convolution with kernel :math:`Kw/\sqrt{\sigma^2+\epsilon}` and bias
:math:`b - w\mu/\sqrt{\sigma^2+\epsilon}`.

TensorFlow pads strided convolutions more at the end than at the beginning, which torch cannot say without
copying the map. A map turned by 180° with its kernels turned as well is padded more at the beginning; and
:math:`\lfloor k/2 \rfloor` zeros on both sides then give the same windows, because the last of them is never
reached. So the picture is turned once, all kernels are, and the mean over the last map does not care.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params
from innerloop.nets.efficientnet_lite import EPS, Layer, blocks_of, layers_of, stem_and_top

Features = Callable[[Tensor], Tensor]
"""Pictures ``(n, C, H, W)`` as the network was trained on → features ``(n, d)``."""


class Folded(NamedTuple):
    """A convolution with its norm layer in it."""

    weight: Tensor
    bias: Tensor
    stride: int
    padding: int
    groups: int
    active: bool

    def __call__(self, x: Tensor) -> Tensor:
        """The convolution, ReLU6 written over its result."""
        y = F.conv2d(x, self.weight, self.bias, self.stride, self.padding, 1, self.groups)
        return F.hardtanh_(y, 0.0, 6.0) if self.active else y


def fold(layer: Layer, params: Params, buffers: Buffers) -> Folded:
    """One layer, turned by 180°; computed in float64, kept in the type of its weights."""
    name = layer.name
    weight, scale, shift = (params[f"{name}.{leaf}"] for leaf in ("weight", "norm.weight", "norm.bias"))
    mean, var = buffers[f"{name}.norm.mean"], buffers[f"{name}.norm.var"]
    gain = scale.double() * (var.double() + EPS).rsqrt()
    kernel = (weight.double() * gain[:, None, None, None]).flip((2, 3)).to(weight.dtype)
    bias = (shift.double() - mean.double() * gain).to(weight.dtype)
    return Folded(
        kernel.contiguous(memory_format=torch.channels_last),
        bias,
        layer.stride,
        layer.shape[-1] // 2,
        layer.groups,
        layer.active,
    )


def folded_efficientnet_lite(version: int, params: Params, buffers: Buffers) -> Features:
    """The features of an EfficientNet-Lite with these stored statistics."""
    if "stem.norm.mean" not in buffers:
        raise UserError("only stored statistics can be folded: use the norm policy 'running'.")
    blocks = blocks_of(version)
    stem, top = stem_and_top(params["stem.weight"].shape[1], blocks)
    first, last = fold(stem, params, buffers), fold(top, params, buffers)
    inner = [
        (block.residual, [fold(layer, params, buffers) for layer in layers_of(block)]) for block in blocks
    ]

    def features(x: Tensor) -> Tensor:
        """Features ``(n, 1280)`` of standardised pictures."""
        x = first(x.flip((2, 3)).contiguous(memory_format=torch.channels_last))
        for residual, layers in inner:
            y = x
            for layer in layers:
                y = layer(y)
            x = y.add_(x) if residual else y
        return last(x).mean((2, 3))

    return features
