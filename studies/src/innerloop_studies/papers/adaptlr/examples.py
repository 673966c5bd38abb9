r"""AdaptLR's two examples (appendix E), exactly: traces of :math:`E S^2` and :math:`E S^3` from moments.

Example 1 has polynomials of one normal number, Example 2 a matrix of independent entries. What the paper
prints is here too, named so, because some of it is not the trace: its exponents of Example 1 multiply
:math:`S_{jm}S_{jl}S_{jl}` where :math:`\operatorname{tr} S^3` has :math:`S_{jm}S_{ml}S_{lj}`.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from innerloop.theory.rate.moments import check_stack

Number = float | Fraction


class Traces(NamedTuple):
    r""":math:`\operatorname{tr} E[S^2]` and :math:`\operatorname{tr} E[S^3]` for ``samples`` samples."""

    square: Number
    cube: Number
    samples: int

    @property
    def rate(self) -> float:
        r""":math:`\alpha^*_{lim} = K\operatorname{tr} E[S^2]/2\operatorname{tr} E[S^3]` (eq. 3.3)."""
        return float(self.samples * self.square / (2 * self.cube))


def normal_moments(count: int, variance: Number) -> list[Number]:
    r""":math:`E[x^k]` of :math:`N(0, \sigma^2)` for k below ``count``: 0, or :math:`\sigma^k(k-1)!!`."""
    return [0 if k % 2 else variance ** (k // 2) * math.prod(range(1, k, 2)) for k in range(count)]


def counts(weights: Sequence[int], dim: int) -> list[int]:
    """How many tuples of numbers below ``dim`` have each weighted sum: the coefficients of Figure 6."""
    coefficients = np.ones(1, dtype=np.int64)
    for weight in weights:
        one = np.zeros(weight * (dim - 1) + 1, dtype=np.int64)
        one[::weight] = 1
        coefficients = np.convolve(coefficients, one)
    return [int(many) for many in coefficients]


def printed_g1(dim: int, index: int) -> int:
    """g₁ as E.5 prints it, C(i + 1, 1) − 2C(i − d + 1, 1), with C(n, 1) = 0 for negative n."""
    return index + 1 - 2 * max(index - dim + 1, 0)


def polynomial_traces(dim: int, samples: int, variance: Number) -> Traces:
    r"""Example 1, exactly: :math:`\varphi(x) = (1, x, \dots, x^{d-1})`, :math:`x \sim N(0, \sigma^2)`."""
    m, k = normal_moments(6 * dim, variance), samples
    pairs = enumerate(counts((1, 1), dim))
    square = sum(many * (k * m[2 * i] + k * (k - 1) * m[i] ** 2) for i, many in pairs)
    cube: Number = sum(k * many * m[2 * i] for i, many in enumerate(counts((1, 1, 1), dim)))
    if k > 1:
        for a, b, c in product(range(dim), repeat=3):
            cube += 3 * k * (k - 1) * m[a + 2 * b + c] * m[a + c]
            cube += k * (k - 1) * (k - 2) * m[a + b] * m[b + c] * m[c + a]
    return Traces(square, cube, samples)


def printed_polynomial_traces(dim: int, samples: int, variance: Number) -> Traces:
    r"""Example 1 as E.3 and E.4 print it; the second number is not the trace of a cube."""
    m, k = normal_moments(6 * dim, variance), samples
    cube: Number = 0
    for a, b, c in product(range(dim), repeat=3):
        cube += k * m[3 * a + b + 2 * c] + 3 * k * (k - 1) * m[2 * a + 2 * c] ** 2 * m[a + b]
        cube += k * (k - 1) * (k - 2) * m[a + b + c] ** 3
    return Traces(polynomial_traces(dim, samples, variance).square, cube, samples)


def independent_traces(moments: Sequence[Number], samples: int, dim: int) -> Traces:
    r"""Example 2, exact for any K and d: entries of :math:`\Phi` are independent copies of ``Y``."""

    # tr S^p sums over closed walks by p rows and p columns; which coincide is a partition of each
    def trace(power: int) -> Number:
        total: Number = 0
        for rows, columns in product(list(_partitions(power)), repeat=2):
            cells = Counter((rows[i], columns[j % power]) for i in range(power) for j in (i, i + 1))
            choices = math.perm(samples, len(set(rows))) * math.perm(dim, len(set(columns)))
            total += choices * math.prod(moments[times] for times in cells.values())
        return total

    return Traces(trace(2), trace(3), samples)


def _partitions(items: int) -> Iterator[tuple[int, ...]]:
    """All ways to put that many items into blocks, each named by its first item's rank."""

    def longer(head: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(head) == items:
            yield head
            return
        for block in range(max(head, default=-1) + 2):
            yield from longer((*head, block))

    yield from longer(())


def adapted(features: Tensor, rate: float) -> Tensor:
    r""":math:`C^\top C = (I - \tfrac{2\alpha}K S)S(I - \tfrac{2\alpha}K S)` of every task, ``(N, d, d)``."""
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
    def of(cls, features: Tensor) -> Self:
        """The least and the largest one of all tasks given."""
        check_stack(features)
        values = torch.linalg.eigvalsh(features.mT @ features)
        return cls(float(values.min()), float(values.max()))

    def proved(self, samples: int) -> tuple[float, float]:
        r"""B.13's ends, :math:`K(\lambda_S^2 \mp \sqrt{\lambda_S^4 - \lambda_I^4})/2\lambda_I^3`."""
        i, s = self
        # the smaller one from their product, which does not cancel
        upper = samples * (s**2 + math.sqrt(s**4 - i**4)) / (2 * i**3)
        return samples**2 / (4 * i**2 * upper), upper


def epsilon(known: Eigenvalues, rate: float, samples: int) -> float:
    r""":math:`\varepsilon(\alpha, K)` of Proposition 1; infinite at the ends of B.13."""
    i, s = known
    a, b = 4 * rate / samples, 4 * rate**2 / samples**2
    below = i - a * s**2 + b * i**3
    return (s - a * i**2 + b * s**3) / below**2 if below else math.inf


def sub_gaussian_norm(values: Tensor, orders: int = 10) -> float:
    r""":math:`\sup_{p \ge 1} p^{-1/2}(E|u|^p)^{1/p}` of the columns, p up to ``orders``; the largest one."""
    size = values.abs().double()
    top = size.max()
    norms = [top * (size / top).pow(p).mean(0).pow(1 / p).max() / math.sqrt(p) for p in range(1, orders + 1)]
    return float(torch.stack(norms).max())


def gap_bounds(e: float, samples: int, dim: int, tasks: int, norm: float, chance: float) -> list[float]:
    """The bound (3.4) of the gap without Hanson–Wright's constant, as printed and with ε² under the root."""
    log = math.log(2 / chance)
    roots = [math.sqrt(dim * under * log) / tasks for under in (e, e**2)]
    return [norm**2 / samples * max(root, e * log / tasks) for root in roots]
