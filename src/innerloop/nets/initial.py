"""First parameters of linear and convolution layers."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def he_normal(generator: torch.Generator, shape: tuple[int, ...], gain: float = 2.0) -> Tensor:
    """Normal with variance ``gain / fan_in``: He's for a gain of 2 (ReLU), LeCun's for 1."""
    fan_in = math.prod(shape[1:])
    draw = torch.randn(shape, generator=generator, device=generator.device)
    return draw * math.sqrt(gain / fan_in)


def standard_normal(generator: torch.Generator, shape: tuple[int, ...]) -> Tensor:
    """N(0, 1), for the NTK parametrisation, where the scale is applied at use."""
    return torch.randn(shape, generator=generator, device=generator.device)
