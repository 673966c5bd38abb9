"""What AdaptLR's reproductions (Zou et al. 2022) share: data, Grams of wide nets, Bernacchia's settings."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.experiment import Recipe, make_recipe
from innerloop.theory.rate.forms import minimise

DOUBLE = torch.float64
Score = Mapping[str, Any]  # a score as JSON holds it, where what is not a number is null


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


# ---- Bernacchia (2021): settings of his Figure 2, and a range of training rates ----

_FAMILY = {"family": "bernacchia-quadratic", "settings": {"dim": 1, "sigma": 1.0, "nu": 0.5, "mean": 0.0}}
TASKS = 3
QUADRATIC: dict[str, Any] = {
    "tasks": {**_FAMILY, "shots": 30, "queries": 2},
    "model": {"hidden": [60]},
    "inner": {"loss": "half-mse"},
    "outer": {"batch": TASKS},
    "eval": {"shots": 20, "queries": 50},
}
STATED = {  # for protocols
    "tasks": "his quadratic family, σ = 1, ν = 0.5, w₀ = 0; p = 1: 30,001 parameters of 10,000 units leave "
    "no other",
    "samples": "n_t = 30, n_v = 2; in tests n_r = 20 and 50 to judge on",
    "tasks per meta-step": f"{TASKS} (m), drawn anew",
    "net": "1-60-1, ReLU",
    "convention": "½ · mean, as Bernacchia",
    "source": "numbers of his Figure 2; AdaptLR prints none for networks, and his for them are not at hand",
}


def maml_recipe(name: str, setting: dict[str, Any], inner: Any, steps: int, episodes: int) -> Recipe:
    """MAML in such a setting, the rest of its inner loop in ``inner``."""
    inner = {"method": "maml", **setting["inner"], **inner}
    outer = {**setting["outer"], "steps": steps, "clip": 10.0}
    judged = {**setting["eval"], "episodes": episodes}
    return make_recipe({**setting, "name": name, "inner": inner, "outer": outer, "eval": judged})


class Excess(NamedTuple):
    r"""What the training rate does to :math:`E\|w_m - w_0\|^2` to first order in 1/m, under-parametrised.

    .. math:: \frac1{m\,n_v^2h^2}\Big(\frac{\nu^2}p E\operatorname{tr}(B^\top B)^2
        + \sigma^2 E\operatorname{tr} B^\top(I + \tfrac{\alpha^2}{n_t^2}X_vS_uX_v^\top)B\Big),
        \qquad B = X_v(I - \tfrac\alpha{n_t}S_u),\; h = \tfrac1pE\operatorname{tr}(I - \tfrac\alpha{n_t}S_u)^2

    for standard normal inputs, the expectation over :math:`X_v` taken in closed form.
    """

    values: Tensor
    queries: int
    shots: int

    def spread(self, rate: float) -> float:
        """The factor of ν², up to m: least at 0, where every task weighs all directions alike."""
        a = (1 - rate * self.values).square()
        n, p = self.queries, a.shape[1]
        fourth = (n + 1) * a.square().sum(1) + a.sum(1).square()
        return float(fourth.mean() / (n * p * a.mean() ** 2))

    def noise(self, rate: float) -> float:
        """The factor of σ², up to m."""
        a, n = (1 - rate * self.values).square(), self.queries
        own = rate**2 / self.shots * ((n + 1) * (a * self.values).sum(1) + self.values.sum(1) * a.sum(1))
        return float((a.sum(1) + own).mean() / (n * a.mean() ** 2))

    def least(self, nu: float, sigma: float, low: float = -2.0, high: float = 1.0) -> float:
        """The training rate with the least excess."""
        return minimise(lambda rate: nu**2 * self.spread(rate) + sigma**2 * self.noise(rate), low, high)
