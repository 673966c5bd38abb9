r"""AdaptLR's Proposition 1 (appendix C): how far the risk of one draw of tasks is from its mean over optima.

With :math:`M_i = C_i^\top C_i` of the N training tasks and :math:`M` its expectation, optima of mean zero and
variance :math:`\sigma_a^2`:

.. math:: L_m(w_m) = \tfrac1K(w_m^\top M w_m + \sigma_a^2\operatorname{tr} M), \qquad
    \bar L_m = \tfrac{\sigma_a^2}K\Big(\operatorname{tr} M\sum_j\Lambda_j\Lambda_j^\top
    + \operatorname{tr} M\Big), \qquad \Lambda_j = \Big(\sum_i M_i\Big)^{-1}M_j
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.theory.rate.moments import check_stack


def adapted(features: Tensor, rate: float) -> Tensor:
    r""":math:`C^\top C = (I - \tfrac{2\alpha}K S)S(I - \tfrac{2\alpha}K S)` of every task, ``(N, d, d)``.

    >>> adapted(torch.ones(1, 4, 1), 0.25)                     # S = 4: (1 − ½)² · 4
    tensor([[[1.]]])
    """
    check_stack(features)
    s = features.mT @ features
    step = torch.eye(s.shape[-1], dtype=s.dtype, device=s.device) - (2 * rate / features.shape[1]) * s
    return step @ s @ step


def risks(
    matrices: Tensor, optima: Tensor, population: Tensor, samples: int, variance: float
) -> tuple[float, float]:
    r""":math:`L_m(w_m)` of one draw (C.4) and :math:`\bar L_m` (C.5), its mean over optima."""
    total = matrices.sum(0)
    w = torch.linalg.solve(total, torch.einsum("nij,nj->i", matrices, optima))
    shared = torch.linalg.solve(total, torch.linalg.solve(total, population).mT)  # A⁻¹MA⁻¹
    squares = torch.einsum("nij,nkj->ik", matrices, matrices)
    floor = variance * float(population.trace())
    mean = variance * float((shared * squares).sum())
    return (float(w @ population @ w) + floor) / samples, (mean + floor) / samples


class Eigenvalues(NamedTuple):
    """Assumption 2's bounds of the eigenvalues of ``S``."""

    least: float
    largest: float

    @classmethod
    def of(cls, features: Tensor) -> Eigenvalues:
        """The least and the largest one of all tasks given."""
        check_stack(features)
        values = torch.linalg.eigvalsh(features.mT @ features)
        return cls(float(values.min()), float(values.max()))

    def proved(self, samples: int) -> tuple[float, float]:
        r"""The two rates between which the proofs of Theorem 1 and Proposition 1 say nothing (B.13).

        :math:`K(\lambda_S^2 \mp \sqrt{\lambda_S^4 - \lambda_I^4})/2\lambda_I^3`: the roots of the lower bound
        of B.12. The smaller one is taken from their product, which does not cancel.

        >>> Eigenvalues(1.0, 1.0).proved(2)
        (1.0, 1.0)
        """
        i, s = self
        upper = samples * (s**2 + math.sqrt(s**4 - i**4)) / (2 * i**3)
        return samples**2 / (4 * i**2 * upper), upper


def epsilon(known: Eigenvalues, rate: float, samples: int) -> float:
    r""":math:`\varepsilon(\alpha, K)` of Proposition 1; infinite at the ends of B.13.

    >>> epsilon(Eigenvalues(2.0, 3.0), 0.0, 10)                # λ_S/λ_I²
    0.75
    """
    i, s = known
    a, b = 4 * rate / samples, 4 * rate**2 / samples**2
    below = i - a * s**2 + b * i**3
    return (s - a * i**2 + b * s**3) / below**2 if below else math.inf


def sub_gaussian_norm(values: Tensor, orders: int = 10) -> float:
    r""":math:`\sup_{p \ge 1} p^{-1/2}(E|u|^p)^{1/p}` of the columns, p up to ``orders``; the largest one.

    >>> round(sub_gaussian_norm(torch.ones(5, 1, dtype=torch.float64)), 6)
    1.0
    """
    size = values.abs().double()
    top = size.max()
    norms = [top * (size / top).pow(p).mean(0).pow(1 / p).max() / math.sqrt(p) for p in range(1, orders + 1)]
    return float(torch.stack(norms).max())


def gap_bound(
    known: Eigenvalues,
    rate: float,
    samples: int,
    dim: int,
    tasks: int,
    norm: float,
    chance: float,
    squared: bool = False,
) -> float:
    r"""The bound (3.4) that the gap keeps with probability 1 − δ, without Hanson–Wright's constant.

    .. math:: \frac{L^2}K\max\Big\{\sqrt{\frac{d\,\varepsilon}{N^2}\log\frac2\delta},\;
        \frac{\varepsilon}N\log\frac2\delta\Big\}
    """
    e, log = epsilon(known, rate, samples), math.log(2 / chance)
    root = math.sqrt(dim * (e**2 if squared else e) * log) / tasks
    return norm**2 / samples * max(root, e * log / tasks)
