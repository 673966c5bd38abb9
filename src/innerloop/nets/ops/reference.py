r"""Layers written from primitive operations: right under every transform of torch, and to every order.

``F.batch_norm`` with batch statistics, under ``vmap`` and differentiated twice, silently returns a wrong
gradient in torch 2.13 (``tests/nets/test_primitives.py`` shows it). :mod:`innerloop.nets.ops.choice` takes
what is faster, where it may be used.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _per_channel(v: Tensor, x: Tensor) -> Tensor:
    return v.view(1, -1, *([1] * (x.ndim - 2)))


def normalise(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Normalises (samples, channels, …) by given statistics: w (x − μ) (σ² + ε)^−½ + b."""
    scale = weight * (var + eps).rsqrt()
    return torch.addcmul(_per_channel(bias, x), x - _per_channel(mean, x), _per_channel(scale, x))


def batch_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Normalises by the batch's own statistics; returns them too (the variance is the biased one)."""
    dims = [0, *range(2, x.ndim)]
    mean = x.mean(dims)
    centred = x - _per_channel(mean, x)
    var = centred.square().mean(dims)
    scale = weight * (var + eps).rsqrt()
    return torch.addcmul(_per_channel(bias, x), centred, _per_channel(scale, x)), mean, var


def group_norm(x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Normalises every sample by the statistics of its own groups of channels."""
    grouped = x.reshape(x.shape[0], groups, -1)
    centred = grouped - grouped.mean(-1, keepdim=True)
    scale = (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
    y = (centred * scale).reshape(x.shape)
    return torch.addcmul(_per_channel(bias, x), y, _per_channel(weight, x))
