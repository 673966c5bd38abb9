"""Linear regression, where everything is known (the formula sheet's section 4), and the 1-D quadratic.

Tasks x ~ N(0, S), y = <w*, x> + z, mean loss with a half, one inner step of size a on m samples.
"""

from __future__ import annotations

import torch
from torch import Tensor


def q_matrix(covariance: Tensor, rate: float, samples: int) -> Tensor:
    """Q = (I − aS) S (I − aS) + (a²/m)(tr(S²) S + S³): the curvature that one inner step leaves."""
    s = covariance
    left = torch.eye(len(s), dtype=s.dtype) - rate * s
    return left @ s @ left + rate**2 / samples * (torch.trace(s @ s) * s + s @ s @ s)


def weighted_optimum(curvatures: list[Tensor], optima: list[Tensor], shares: list[float]) -> Tensor:
    """E[C]⁻¹ E[C w*]."""
    total = sum(p * c for p, c in zip(shares, curvatures, strict=True))
    pull = sum(p * c @ w for p, c, w in zip(shares, curvatures, optima, strict=True))
    return torch.linalg.solve(torch.as_tensor(total), torch.as_tensor(pull))


def w_nal(covariances: list[Tensor], optima: list[Tensor], shares: list[float]) -> Tensor:
    """The minimiser of the non-adaptive risk."""
    return weighted_optimum(covariances, optima, shares)


def w_maml(
    covariances: list[Tensor], optima: list[Tensor], shares: list[float], rate: float, samples: int
) -> Tensor:
    """The minimiser of the risk after one inner step."""
    return weighted_optimum([q_matrix(c, rate, samples) for c in covariances], optima, shares)


def quadratic_maml(theta: float, rate: float, steps: int, inner: float, outer: float) -> tuple[float, float]:
    """Loss and meta-gradient of MAML on ½(θ − inner)² in, ½(θ − outer)² out, by hand.

    θ_T = inner + (1 − a)^T (θ − inner), so L = ½(θ_T − outer)² and dL/dθ = (1 − a)^T (θ_T − outer).
    """
    shrink = (1 - rate) ** steps
    end = inner + shrink * (theta - inner)
    return 0.5 * (end - outer) ** 2, shrink * (end - outer)
