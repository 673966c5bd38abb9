"""Families of regression tasks: sinusoids, linear and quadratic models, by name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.importing import load_object
from innerloop.core.random import Draws
from innerloop.core.types import TaskBatch
from innerloop.tasks.sampler import Family


def _both_sets(
    draws: Draws, points: Callable[[str, int], tuple[Tensor, Tensor]], shots: int, queries: int
) -> TaskBatch:
    number = torch.from_numpy(draws.task.copy())
    return TaskBatch(*points("support", shots), *points("query", queries), number)


def _sinusoids(
    draws: Draws,
    shots: int,
    queries: int,
    amplitude: tuple[float, float],
    phase: tuple[float, float],
    x_range: tuple[float, float],
    sign: int,
) -> TaskBatch:
    a = draws.uniform("amplitude", (1, 1), *amplitude)
    b = draws.uniform("phase", (1, 1), *phase)

    def points(name: str, n: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of one set."""
        x = draws.uniform(f"x-{name}", (n, 1), *x_range, per="sample")
        return x, a * torch.sin(x + sign * b)

    return _both_sets(draws, points, shots, queries)


def sine(
    draws: Draws,
    shots: int,
    queries: int,
    amplitude: tuple[float, float] = (0.1, 5.0),
    phase: tuple[float, float] = (0.0, math.pi),
    x_range: tuple[float, float] = (-5.0, 5.0),
) -> TaskBatch:
    r"""Finn et al. (2017): :math:`y = a \sin(x - b)`, a ~ U(0.1, 5), b ~ U(0, π), x ~ U(−5, 5)."""
    return _sinusoids(draws, shots, queries, amplitude, phase, x_range, sign=-1)


def adaptlr_sine(
    draws: Draws,
    shots: int,
    queries: int,
    amplitude: tuple[float, float] = (0.0, math.pi),
    phase: tuple[float, float] = (0.0, math.pi),
    x_range: tuple[float, float] = (-5.0, 5.0),
) -> TaskBatch:
    r"""AdaptLR H.3: :math:`y = a \sin(x + b)`, a and b ~ U(0, π), x ~ U(−5, 5)."""
    return _sinusoids(draws, shots, queries, amplitude, phase, x_range, sign=+1)


def mixed_linear(
    draws: Draws,
    shots: int,
    queries: int,
    dim: int = 30,
    sigma: float = 0.2,
    nu: float = 0.2,
    mean: float = 0.0,
) -> TaskBatch:
    r"""AdaptLR H.5, after Bernacchia (2021): :math:`y \sim N(x^\top w, \sigma^2)`.

    :math:`w \sim N(w_0, \nu^2/p\, I_p)`, :math:`x \sim N(0, I_p)`, every entry of :math:`w_0` is ``mean``.
    """
    w = draws.normal("w", (dim, 1), mean=mean, std=nu / math.sqrt(dim))

    def points(name: str, n: int) -> tuple[Tensor, Tensor]:
        """Inputs and noisy targets of one set."""
        x = draws.normal(f"x-{name}", (n, dim), per="sample")
        return x, x @ w + draws.normal(f"z-{name}", (n, 1), std=sigma, per="sample")

    return _both_sets(draws, points, shots, queries)


def linear(
    draws: Draws,
    shots: int,
    queries: int,
    dim: int = 10,
    rho_hard: float = 0.1,
    rho_easy: float = 1.0,
    R: float = 1.0,
    r_hard: float = 0.1,
    r_easy: float = 0.1,
    hard_share: float = 0.5,
    covariances: Sequence[Sequence[float] | Sequence[Sequence[float]]] | None = None,
    optima: Sequence[Sequence[float]] | None = None,
    weights: Sequence[float] | None = None,
) -> TaskBatch:
    r"""Landscape §3: :math:`x \sim N(0, \Sigma_i)`, :math:`y = \langle w_i^*, x\rangle`.

    By default the geography of §3.2: with probability ``hard_share`` a hard task,
    :math:`\Sigma = \rho_H I`, :math:`w^* \sim N(R\mathbf 1, r_H I)`, else an easy one,
    :math:`\Sigma = \rho_E I`, :math:`w^* \sim N(0, r_E I)`. With ``covariances`` (matrices, or their
    diagonals) and ``optima`` given, each task is one of those, drawn with ``weights``.
    """
    if (covariances is None) != (optima is None):
        raise UserError(
            "give {covariances} and {optima} together, or neither.", names=("covariances", "optima")
        )
    if covariances is not None and optima is not None:
        root, w = _chosen(draws, covariances, optima, weights)
        dim = root.shape[-1]
    else:
        hard = (draws.uniform("hard", (1, 1)) < hard_share).to(draws.dtype)
        # not torch.where on plain numbers: that is float32, whatever the dtype of the draws
        w = R * hard + _either(hard, math.sqrt(r_hard), math.sqrt(r_easy)) * draws.normal("w", (dim, 1))
        rho = _either(hard, math.sqrt(rho_hard), math.sqrt(rho_easy))
        root = rho * torch.eye(dim, dtype=draws.dtype)

    def points(name: str, n: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of one set."""
        x = draws.normal(f"x-{name}", (n, dim), per="sample") @ root
        return x, x @ w

    return _both_sets(draws, points, shots, queries)


def _either(yes: Tensor, a: float, b: float) -> Tensor:
    """``a`` where ``yes`` is 1, ``b`` where it is 0."""
    return a * yes + b * (1 - yes)


def _chosen(
    draws: Draws,
    covariances: Sequence[Sequence[float] | Sequence[Sequence[float]]],
    optima: Sequence[Sequence[float]],
    weights: Sequence[float] | None,
) -> tuple[Tensor, Tensor]:
    """Square roots of the covariances and the optima of the drawn tasks."""
    if len(covariances) != len(optima):
        raise UserError(
            f"{len(covariances)} covariances but {len(optima)} optima: give one of each per task."
        )
    share = np.asarray(weights if weights is not None else [1.0] * len(optima), dtype=np.float64)
    if len(share) != len(optima) or (share < 0).any() or share.sum() <= 0:
        raise UserError("{weights} needs one non-negative number per task.", names=("weights",))
    u = draws.uniform("which", ()).double().numpy()
    which = np.minimum(np.searchsorted(np.cumsum(share / share.sum()), u, side="right"), len(optima) - 1)
    matrices = [torch.tensor(c, dtype=torch.float64) for c in covariances]
    square = [torch.diag(m) if m.ndim == 1 else m for m in matrices]
    if any(
        m.shape != (len(w), len(w)) or len(w) != len(optima[0]) for m, w in zip(square, optima, strict=True)
    ):
        raise UserError(
            "{covariances} and {optima} need one dimension, the same in all tasks.",
            names=("covariances", "optima"),
        )
    full = torch.stack(square)
    values, vectors = torch.linalg.eigh(full)
    negative = (values < -1e-10 * values.abs().amax(-1, keepdim=True)).any()
    if negative or not torch.allclose(full, full.mT):
        raise UserError(
            "{covariances} must be symmetric with no negative eigenvalue.", names=("covariances",)
        )
    roots = (vectors * values.clamp(min=0).sqrt().unsqueeze(-2)) @ vectors.mT
    return roots[which].to(draws.dtype), torch.tensor(optima, dtype=draws.dtype)[which].unsqueeze(-1)


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
    r"""Bridge §5.1: x ~ N(μ, ν²I), :math:`y = \nu\|x-\mu\|^2`, μ ~ N(0, I), ν ~ U(1.3, 1.6)."""
    mu = draws.normal("mu", (1, dim))
    nu = draws.uniform("nu", (1, 1), *nu_range)

    def points(name: str, n: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of one set."""
        x = mu + nu * draws.normal(f"x-{name}", (n, dim), per="sample")
        y = nu * (x - mu).square().sum(-1, keepdim=True)
        return (on_sphere(x) if scale == "sphere" else x), y

    return _both_sets(draws, points, shots, queries)


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

    return _both_sets(draws, points, shots, queries)


FAMILIES: dict[str, Family] = {
    "sine": sine,
    "adaptlr-sine": adaptlr_sine,
    "bridge-quadratic": bridge_quadratic,
    "bernacchia-quadratic": bernacchia_quadratic,
    "mixed-linear": mixed_linear,
    "linear": linear,
}
"""Built-in families, by their names in ``tasks.family``."""


def get_family(name: str) -> Family:
    """A built-in family, or ``Trusted("package.module:function")`` of the user's own.

    >>> get_family("sine").__name__
    'sine'
    """
    if name in FAMILIES:
        return FAMILIES[name]
    if ":" not in name:
        known = ", ".join(FAMILIES)
        raise UserError(
            f"unknown task family '{name}'{did_you_mean(name, FAMILIES)}; there are {known}, "
            "or give your own as package.module:function."
        )
    return _checked(load_object(name), name)


def _checked(family: Any, name: str) -> Family:
    """What a name led to, refused where it cannot be called as a family is."""
    try:
        inspect.signature(family).bind_partial(None, 1, 1)
    except (TypeError, ValueError):
        raise UserError(
            f"'{name}' cannot be called with draws, shots and queries, as a family of tasks is: name a "
            "function that takes them."
        ) from None
    made: Family = family
    return made
