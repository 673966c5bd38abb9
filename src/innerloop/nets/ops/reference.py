r"""Layers written from primitive operations: right under every transform of torch, and to every order.

``F.batch_norm`` with batch statistics, under ``vmap`` and differentiated twice, silently returns a wrong
gradient in torch 2.13 (``tests/nets/test_primitives.py`` shows it). :mod:`innerloop.nets.ops.choice` takes
what is faster, where it may be used.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def _per_channel(v: Tensor, x: Tensor) -> Tensor:
    return v.view(1, -1, *([1] * (x.ndim - 2)))


def normalise(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    r"""Normalises (samples, channels, …) by given statistics: :math:`w(x-\mu)(\sigma^2+\epsilon)^{-1/2} + b`.

    >>> one, zero = torch.ones(2), torch.zeros(2)
    >>> normalise(torch.tensor([[3.0, 5.0]]), mean=one, var=4 * one, weight=one, bias=zero, eps=0.0)
    tensor([[1., 2.]])
    """
    scale = weight * (var + eps).rsqrt()
    return torch.addcmul(_per_channel(bias, x), x - _per_channel(mean, x), _per_channel(scale, x))


def batch_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Normalises by the batch's own statistics; returns them too (the variance is the biased one).

    >>> y, mean, var = batch_norm(torch.tensor([[1.0], [3.0]]), torch.ones(1), torch.zeros(1), eps=0.0)
    >>> y.flatten().tolist(), mean.item(), var.item()
    ([-1.0, 1.0], 2.0, 1.0)
    """
    dims = [0, *range(2, x.ndim)]
    mean = x.mean(dims)
    centred = x - _per_channel(mean, x)
    var = centred.square().mean(dims)
    scale = weight * (var + eps).rsqrt()
    return torch.addcmul(_per_channel(bias, x), centred, _per_channel(scale, x)), mean, var


def group_norm(x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Normalises every sample by the statistics of its own groups of channels.

    >>> x = torch.tensor([[1.0, 3.0, 10.0, 30.0]])
    >>> group_norm(x, 2, torch.ones(4), torch.zeros(4), eps=0.0)
    tensor([[-1.,  1., -1.,  1.]])
    """
    grouped = x.reshape(x.shape[0], groups, -1)
    centred = grouped - grouped.mean(-1, keepdim=True)
    scale = (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
    y = (centred * scale).reshape(x.shape)
    return torch.addcmul(_per_channel(bias, x), y, _per_channel(weight, x))


def conv2d(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int) -> Tensor:
    """Convolution of (samples, channels, height, width) with (filters, channels, k, k).

    >>> conv2d(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 3, 3), None, stride=1, padding=1).flatten().tolist()
    [4.0, 4.0, 4.0, 4.0]
    """
    return F.conv2d(x, weight, bias, stride=stride, padding=padding)
