"""First parameters of linear and convolution layers."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def he_normal(generator: torch.Generator, shape: tuple[int, ...], gain: float = 2.0) -> Tensor:
    """Normal with variance ``gain / fan_in``: He's for a gain of 2 (ReLU), LeCun's for 1."""
    fan_in = math.prod(shape[1:])
    return standard_normal(generator, shape) * math.sqrt(gain / fan_in)


def standard_normal(generator: torch.Generator, shape: tuple[int, ...]) -> Tensor:
    """N(0, 1), float32; one seed gives the same numbers on every CPU."""
    # drawn in float64, because torch's float32 normals depend on the processor's vector instructions
    if generator.device.type != "cpu":
        return torch.randn(shape, generator=generator, device=generator.device)
    return torch.randn(shape, generator=generator, dtype=torch.float64).float()


def uniform(generator: torch.Generator, shape: tuple[int, ...], fan_in: int) -> Tensor:
    """U(±1/√fan_in): Kaiming-uniform with a = √5, as ``nn.Linear`` starts."""
    draw = torch.rand(shape, generator=generator, device=generator.device)
    return (2 * draw - 1) * fan_in**-0.5
