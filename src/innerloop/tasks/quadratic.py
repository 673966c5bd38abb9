r"""Quadratic regression, in the forms of two papers."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from innerloop.core.random import Draws
from innerloop.core.types import TaskBatch


def on_sphere(x: Tensor) -> Tensor:
    r"""Rows scaled to norm :math:`\sqrt d`."""
    return x * (math.sqrt(x.shape[-1]) / x.norm(dim=-1, keepdim=True))


def bridge_quadratic(
    draws: Draws,
    shots: int,
    queries: int,
    dim: int = 10,
    nu_range: tuple[float, float] = (1.3, 1.6),
    scale: str = "none",
) -> TaskBatch:
    r"""Bridge §5.1: :math:`x \sim N(\mu, \nu^2 I)`, :math:`y = \nu\|x-\mu\|^2`, μ ~ N(0, I), ν ~ U(1.3, 1.6).

    >>> batch = bridge_quadratic(Draws(0, [0]), 5, 10)
    >>> batch.x_query.shape, bool((batch.y_query >= 0).all())
    (torch.Size([1, 10, 10]), True)
    """
    mu = draws.normal("mu", (1, dim))
    nu = draws.uniform("nu", (1, 1), *nu_range)

    def points(name: str, n: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of one set."""
        x = mu + nu * draws.normal(name, (n, dim), per="sample")
        y = nu * (x - mu).square().sum(-1, keepdim=True)
        return (on_sphere(x) if scale == "sphere" else x), y

    return TaskBatch(
        *points("x-support", shots), *points("x-query", queries), torch.from_numpy(draws.task.copy())
    )


def bernacchia_quadratic(
    draws: Draws,
    shots: int,
    queries: int,
    dim: int = 1,
    sigma: float = 1.0,
    nu: float = 0.5,
    mean: float = 0.0,
) -> TaskBatch:
    r"""AdaptLR H.3, after Bernacchia (2021): :math:`y \sim N((x^\top w + b)^2, \sigma^2)`.

    :math:`w \sim N(w_0, \nu^2/p\, I_p)`, :math:`b \sim N(0, \sigma^2)`, :math:`x \sim N(0, I_p)`, with every
    entry of :math:`w_0` equal to ``mean``. The paper does not state p; that its network of 10,000 hidden
    units has 30,001 parameters leaves p = 1 only.
    """
    w = draws.normal("w", (dim, 1), mean=mean, std=nu / math.sqrt(dim))
    b = draws.normal("b", (1, 1), std=sigma)

    def points(name: str, n: int) -> tuple[Tensor, Tensor]:
        """Inputs and noisy targets of one set."""
        x = draws.normal(f"x-{name}", (n, dim), per="sample")
        return x, (x @ w + b).square() + draws.normal(f"z-{name}", (n, 1), std=sigma, per="sample")

    return TaskBatch(
        *points("support", shots), *points("query", queries), torch.from_numpy(draws.task.copy())
    )
