r"""Layers written from primitive operations, because the built-in ones are wrong or slow where we need them.

``F.batch_norm`` with batch statistics, under ``vmap`` and differentiated twice, silently returns a wrong
gradient in torch 2.13 (``tests/test_primitives.py`` shows it). The functions here are right in every mode and
to every order. The one that costs the time in convolutional networks, :func:`conv_norm_relu`, has a faster
form for tasks that are run one at a time on a CPU: see :mod:`innerloop.nets.ops.fused`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

import innerloop.nets.ops.fused as fused
from innerloop.core import autodiff

KERNEL_GROUP = 16
"""Values per group from which torch's own group normalisation is used, outside ``vmap``."""


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
    # one kernel where it is right: of groups of one value its derivatives are noise, if it takes them at all
    if autodiff.is_untransformed() and x[0].numel() >= groups * KERNEL_GROUP:
        return F.group_norm(x, groups, weight, bias, eps)
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
    """A convolutional block with batch statistics: ``relu(batch_norm(conv2d(x)))``, mean and variance.

    Mean and variance are for running averages: they are not to be differentiated. The convolution's bias
    moves the mean only, since batch normalisation takes it out again; its gradient is zero.

    Args:
        x: (samples, channels, height, width).
        weight: (filters, channels, k, k).
        bias: of the convolution, or None.
        scale: of the normalisation.
        shift: of the normalisation.
        eps: added to the variance.
        stride: of the convolution.
        padding: of the convolution.

    >>> x, w, one, zero = torch.randn(4, 1, 8, 8), torch.randn(2, 1, 3, 3), torch.ones(2), torch.zeros(2)
    >>> conv_norm_relu(x, w, None, one, zero, 1e-5, stride=2, padding=1)[0].shape
    torch.Size([4, 2, 4, 4])
    """
    if autodiff.is_plain() and fused.suits(x, weight):
        y, mean, var = fused.conv_norm_relu(x, weight, scale, shift, eps, stride, padding)
        return y, mean if bias is None else mean + bias.detach(), var
    y, mean, var = batch_norm(conv2d(x, weight, bias, stride, padding), scale, shift, eps)
    return F.relu(y), mean.detach(), var.detach()
