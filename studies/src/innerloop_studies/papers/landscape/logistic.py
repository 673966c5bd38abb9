r"""Logistic regression with one inner step, many runs at once (Landscape, C.2).

Labels are drawn from the true model: :math:`P(y=1\mid x)=\sigma(\langle w^*,x\rangle)`,
:math:`x\sim N(0,\rho I)`. The loss of any ``w`` is then a two-dimensional Gaussian integral, taken by
Gauss–Hermite quadrature.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

F64 = torch.float64


def draw(rho: Tensor, optima: Tensor, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Samples ``(…, n, d)`` and labels ``(…, n)`` of tasks with scales ``(…)`` and optima ``(…, d)``."""
    x = rho.sqrt()[..., None, None] * torch.randn(
        *rho.shape, n, optima.shape[-1], generator=generator, dtype=F64
    )
    chance = torch.sigmoid((x @ optima[..., None])[..., 0])
    return x, (torch.rand(chance.shape, generator=generator, dtype=F64) < chance).to(F64)


def gradient(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Of the mean logistic loss, ``(…, d)``."""
    residual = torch.sigmoid((x @ w[..., None])[..., 0]) - y
    return (x.mT @ residual[..., None])[..., 0] / x.shape[-2]


def maml_gradient(w: Tensor, inner: tuple[Tensor, Tensor], outer: tuple[Tensor, Tensor], lr: float) -> Tensor:
    """Of the outer loss after one inner step: (I − αH_in) ∇f_out(w′)."""
    x, y = inner
    chance = torch.sigmoid((x @ w[..., None])[..., 0])
    moved = w - lr * gradient(w, x, y)
    g = gradient(moved, *outer)
    curved = (chance * (1 - chance))[..., None] * (x @ g[..., None])
    return g - lr * (x.mT @ curved)[..., 0] / x.shape[-2]


def excess_loss(w: Tensor, rho: Tensor, optima: Tensor, points: int = 40) -> Tensor:
    """The population loss of ``w`` beyond that of the optimum, ``(…)``; the labels' own entropy is out."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    z, p = torch.from_numpy(nodes), torch.from_numpy(weights / weights.sum())
    size = optima.norm(dim=-1)
    along = (w * optima).sum(-1) / size
    across = (w.square().sum(-1) - along.square()).clamp(min=0).sqrt()
    root = rho.sqrt()[..., None, None]
    t = root * size[..., None, None] * z[:, None]
    s = root * (along[..., None, None] * z[:, None] + across[..., None, None] * z[None])
    chance = torch.sigmoid(t)
    value = F.softplus(s) - chance * s - (F.softplus(t) - chance * t)
    return (value * p[:, None] * p[None]).sum((-2, -1))


def risk(w: Tensor, rho: Tensor, optima: Tensor, lr: float, shots: int, draws: int, seed: int) -> Tensor:
    """Excess loss after one step, averaged over ``draws`` support sets, ``(…)``."""
    g = torch.Generator().manual_seed(seed)
    total = torch.zeros(rho.shape, dtype=F64)
    for _ in range(draws):
        x, y = draw(rho, optima, shots, g)
        total += excess_loss(w - lr * gradient(w, x, y), rho, optima)
    return total / draws


def sgd(
    method: str,
    rho: Tensor,
    dim: int,
    lr: float,
    outer_lr: float,
    shots: tuple[int, int],
    steps: int,
    seed: int,
) -> Tensor:
    """Ends of SGD for every entry of ``rho`` (…, the hard task's scale; the easy one has 1): ``(…, d)``."""
    inner, outer = shots
    g = torch.Generator().manual_seed(seed)
    w = torch.zeros(*rho.shape, dim, dtype=F64)
    for _ in range(steps):
        hard = torch.rand(rho.shape, generator=g) < 0.5
        scale = torch.where(hard, rho, torch.ones_like(rho))
        best = torch.where(hard, 1.0, -1.0).to(F64)[..., None].expand(*rho.shape, dim)
        if method == "nal":
            w = w - outer_lr * gradient(w, *draw(scale, best, inner + outer, g))
        else:
            support, query = draw(scale, best, inner, g), draw(scale, best, outer, g)
            w = w - outer_lr * maml_gradient(w, support, query, lr)
    return w
