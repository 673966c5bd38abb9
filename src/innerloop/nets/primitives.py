"""Layers from primitives (being replaced by tuned versions)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def _view(v: Tensor, x: Tensor) -> Tensor:
    return v.view(1, -1, *([1] * (x.ndim - 2)))


def normalise(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """(x − mean)/√(var + eps) · weight + bias."""
    scale = weight * (var + eps).rsqrt()
    return x * _view(scale, x) + _view(bias - mean * scale, x)


def batch_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Batch statistics."""
    dims = [0, *range(2, x.ndim)]
    var, mean = torch.var_mean(x, dims, correction=0)
    return normalise(x, mean, var, weight, bias, eps), mean, var


def group_norm(x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Per-sample group statistics."""
    n, c = x.shape[:2]
    y = x.reshape(n, groups, -1)
    var, mean = torch.var_mean(y, -1, correction=0, keepdim=True)
    y = ((y - mean) * (var + eps).rsqrt()).reshape(x.shape)
    return y * _view(weight, x) + _view(bias, x)


def conv2d(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int) -> Tensor:
    """Convolution."""
    return F.conv2d(x, weight, bias, stride=stride, padding=padding)
