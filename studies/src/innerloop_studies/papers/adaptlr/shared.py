"""What the reproductions of AdaptLR (Zou et al. 2022) share: drawing data, Grams of wide nets."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

DOUBLE = torch.float64
Score = Mapping[str, Any]
"""A score as JSON holds it, where what is not a number is null."""


class Law(NamedTuple):
    """A distribution by its kind: low and high, mean and deviation, the mean, degrees, or the exponent."""

    kind: str
    a: float
    b: float = 0.0

    def draw(self, made: torch.Generator, *shape: int) -> Tensor:
        """Independent values in float64."""
        if self.kind == "uniform":
            return self.a + (self.b - self.a) * torch.rand(*shape, generator=made, dtype=DOUBLE)
        if self.kind == "normal":
            return self.a + self.b * torch.randn(*shape, generator=made, dtype=DOUBLE)
        if self.kind == "exponential":
            return -self.a * torch.log1p(-torch.rand(*shape, generator=made, dtype=DOUBLE))
        if self.kind == "chi-square":
            return torch.randn(*shape, int(self.a), generator=made, dtype=DOUBLE).square().sum(-1)
        if self.kind == "zipf":  # P(k) ∝ k^−a on 1 … 1000
            weights = torch.arange(1, 1001, dtype=DOUBLE) ** -self.a
            drawn = torch.multinomial(weights, math.prod(shape), replacement=True, generator=made)
            return (drawn + 1).double().reshape(shape)
        raise ValueError(f"unknown distribution '{self.kind}'")

    def __str__(self) -> str:
        short = {
            "uniform": f"U({self.a:g}, {self.b:g})",
            "normal": f"N({self.a:g}, {self.b:.3g}²)",
            "exponential": f"Exp(mean {self.a:g})",
            "chi-square": f"χ²({self.a:g})",
            "zipf": f"Zipf({self.a:g})",
        }
        return short[self.kind]


def same_variance(kind: str, variance: float) -> Law:
    """The law of a kind with that variance: centred, but for the exponential one."""
    s = math.sqrt(variance)
    if kind == "uniform":
        return Law("uniform", -math.sqrt(12) * s / 2, math.sqrt(12) * s / 2)
    return Law("normal", 0.0, s) if kind == "normal" else Law("exponential", s)


def seeded(seed: int) -> torch.Generator:
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


def errors_of(scores: Sequence[Score]) -> list[float]:
    """Mean errors; where training failed, infinity."""
    means = [math.nan if score["mean"] is None else score["mean"] for score in scores]
    return [mean if math.isfinite(mean) else math.inf for mean in means]


class WideNet(NamedTuple):
    """A two-layer ReLU net in standard parametrisation, whose tangent Grams cost two products."""

    first: Tensor
    second: Tensor


def wide_net(made: torch.Generator, inputs: int, width: int, law: str) -> WideNet:
    """Weights drawn from U(−1, 1) or N(0, 1)."""
    one = Law("uniform", -1, 1) if law == "uniform" else Law("normal", 0, 1)
    return WideNet(one.draw(made, inputs, width), one.draw(made, width))


def tangent_gram(net: WideNet, x: Tensor, z: Tensor) -> Tensor:
    r"""Gram of tangents: :math:`h^+h'^{+\top} + (xz^\top)\circ(a1_{h>0})(a1_{h'>0})^\top + 1`, h = xW."""
    h, g = x @ net.first, z @ net.first
    on_h, on_g = (h > 0).to(x.dtype) * net.second, (g > 0).to(x.dtype) * net.second
    return h.relu() @ g.relu().mT + (x @ z.mT) * (on_h @ on_g.mT) + 1.0


def tangent_entries(net: WideNet, x: Tensor) -> float:
    """The variance of all entries of the tangent features (the paper's ``std()²``)."""
    h = x @ net.first
    on = (h > 0).to(x.dtype) * net.second
    count = x.shape[0] * (net.first.numel() + net.second.numel() + 1)
    total = h.relu().sum() + torch.einsum("nw,ni->", on, x) + x.shape[0]
    squares = h.relu().square().sum() + torch.einsum("nw,ni->", on.square(), x.square()) + x.shape[0]
    return float(squares / count - (total / count) ** 2)
