"""AdaptLR's appendices C and E and Bernacchia's range: exact forms against sums over all cases."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch

from innerloop.testing.closeness import CHAINED, SINGLE_SUMMED, SUMMED, assert_close, assert_mean
from innerloop.theory.rate.estimate import limit_moments
from innerloop_studies.papers.adaptlr.examples import (
    Eigenvalues,
    Traces,
    adapted,
    counts,
    epsilon,
    gap_bounds,
    independent_traces,
    normal_moments,
    polynomial_traces,
    printed_polynomial_traces,
    risks,
    sub_gaussian_norm,
)
from innerloop_studies.papers.adaptlr.shared import Excess, seeded

DOUBLE = torch.float64


def traces_of(features: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Weighted means of tr S² and tr S³ over a stack of feature matrices, formed one by one."""
    square = cube = 0.0
    for phi, weight in zip(features, weights, strict=True):
        s = phi.T @ phi
        square += weight * np.trace(s @ s)
        cube += weight * np.trace(s @ s @ s)
    return square, cube


@pytest.mark.parametrize(("dim", "samples", "variance"), [(3, 1, 0.5), (3, 2, 1.5), (2, 3, 2.0)])
def test_polynomials_of_a_normal_number_are_those_of_quadrature(
    dim: int, samples: int, variance: float
) -> None:
    """Gauss–Hermite nodes integrate these polynomials exactly."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(12)
    grid = np.array(list(product(nodes, repeat=samples))) * variance**0.5
    mass = np.array([np.prod(w) for w in product(weights / weights.sum(), repeat=samples)])
    square, cube = traces_of(grid[..., None] ** np.arange(dim), mass)
    exact = polynomial_traces(dim, samples, variance)
    assert float(exact.square) == pytest.approx(square, rel=CHAINED)
    assert float(exact.cube) == pytest.approx(cube, rel=CHAINED)
    assert exact.rate == pytest.approx(samples * square / (2 * cube), rel=CHAINED)
    printed = printed_polynomial_traces(dim, samples, variance)
    assert float(printed.square) == pytest.approx(square, rel=CHAINED)  # E.3 is right, E.4 is not
    assert float(printed.cube) != pytest.approx(cube, rel=1e-3)


@pytest.mark.parametrize(("samples", "dim"), [(1, 3), (2, 2), (3, 1), (2, 3)])
def test_independent_entries_are_those_of_all_matrices(samples: int, dim: int) -> None:
    values, chances = np.array([-1.0, 0.5, 2.0]), np.array([0.2, 0.5, 0.3])
    moments = [float((chances * values**k).sum()) for k in range(7)]
    cells = samples * dim
    matrices = np.array(list(product(values, repeat=cells))).reshape(-1, samples, dim)
    mass = np.array([np.prod(c) for c in product(chances, repeat=cells)])
    square, cube = traces_of(matrices, mass)
    exact = independent_traces(moments, samples, dim)
    assert (float(exact.square), float(exact.cube)) == pytest.approx((square, cube), rel=SUMMED)
    if (samples, dim) == (1, 3):
        assert exact.rate < 0.7 * moments[4] / (2 * moments[6])  # as E.12 prints it


def test_coefficients_are_counted() -> None:
    for weights in ((1, 1), (3, 1, 2), (1, 1, 1)):
        seen = Counter(
            sum(w * i for w, i in zip(weights, index, strict=True))
            for index in product(range(4), repeat=len(weights))
        )
        assert counts(weights, 4) == [seen[total] for total in range(sum(weights) * 3 + 1)]
    assert normal_moments(5, 3.0) == [1, 0, 3, 0, 27]
    assert Traces(2.0, 4.0, 3).rate == 0.75


def test_the_mean_risk_is_that_of_all_optima() -> None:
    """w_m is linear in the optima: the mean over them is a sum over one coordinate at a time."""
    made = seeded(0)
    features, pool = (torch.randn(n, 6, 3, generator=made, dtype=DOUBLE) for n in (4, 50))
    matrices, population = adapted(features, 0.05), adapted(pool, 0.05).mean(0)
    floor = 2.0 * float(population.trace()) / 6
    total = 0.0
    for task, coordinate in product(range(4), range(3)):
        one = torch.zeros(4, 3, dtype=DOUBLE)
        one[task, coordinate] = 2.0**0.5
        total += risks(matrices, one, population, 6, 2.0)[0] - floor
    optima = torch.randn(4, 3, generator=made, dtype=DOUBLE)
    drawn, mean = risks(matrices, optima, population, 6, 2.0)
    assert mean == pytest.approx(total + floor, rel=SUMMED)
    w = torch.linalg.lstsq(
        matrices.sum(0), torch.stack([m @ a for m, a in zip(matrices, optima, strict=True)]).sum(0)
    ).solution
    each = [(w @ m @ w + 2.0 * m.trace()) / 6 for m in adapted(pool, 0.05)]
    assert drawn == pytest.approx(float(torch.stack(each).mean()), rel=SUMMED)


def test_the_estimate_never_lies_where_the_proof_allows_it() -> None:
    """K/2λ_S ≤ α*_lim ≤ K/2λ_I, and B.13 leaves out all of that."""
    made = seeded(1)
    for _ in range(50):
        features = torch.randn(5, 8, 3, generator=made, dtype=DOUBLE)
        known = Eigenvalues.of(features)
        low, high = known.proved(8)
        for end in (low, high):  # the roots of B.12's lower bound
            i, s = known
            terms = [i, -4 * end * s**2 / 8, 4 * end**2 * i**3 / 64]
            assert abs(sum(terms)) < CHAINED * max(map(abs, terms))
        assert low < limit_moments(features).rate < high
        assert epsilon(known, 0.999 * low, 8) > epsilon(known, 0.0, 8)


def test_the_bound_is_as_printed_or_as_proved() -> None:
    known = Eigenvalues(2.0, 3.0)
    log = float(np.log(2 / 0.05))
    e = epsilon(known, 0.0, 4)
    printed, proved = gap_bounds(e, 4, 100, 10, 2.0, 0.05)
    assert printed == pytest.approx((100 * 0.75 * log) ** 0.5 / 10)
    assert proved == pytest.approx(0.75 * (100 * log) ** 0.5 / 10)
    assert gap_bounds(e, 4, 1, 10, 2.0, 0.05)[0] == pytest.approx(0.75 * log / 10)
    normal = torch.randn(100_000, 1, generator=seeded(0), dtype=DOUBLE)
    assert sub_gaussian_norm(normal) == pytest.approx((2 / np.pi) ** 0.5, rel=0.01)  # p = 1 is the largest


def test_bernacchias_excess_is_that_of_drawn_tasks() -> None:
    """The closed form over query inputs against products that are formed."""
    made, shots, queries, dim, rate = seeded(2), 3, 4, 5, -0.3
    x_u = torch.randn(20_000, shots, dim, generator=made, dtype=DOUBLE)
    x_v = torch.randn(20_000, queries, dim, generator=made, dtype=DOUBLE)
    s_u = x_u.mT @ x_u
    step = torch.eye(dim, dtype=DOUBLE) - rate / shots * s_u
    b = x_v @ step
    h = float(step.square().sum((1, 2)).mean() / dim)
    excess = Excess(torch.linalg.eigvalsh(s_u / shots).clamp(min=0), queries, shots)
    scale = queries**2 * h**2
    gram = b.mT @ b
    assert_mean(gram.square().sum((1, 2)) / dim / scale, excess.spread(rate))
    noise = torch.eye(queries, dtype=DOUBLE) + rate**2 / shots**2 * x_v @ s_u @ x_v.mT
    assert_mean((b.mT @ noise @ b).diagonal(dim1=1, dim2=2).sum(1) / scale, excess.noise(rate))
    assert_close(torch.tensor(excess.least(1.0, 0.0)), torch.tensor(0.0), (0, SINGLE_SUMMED))
    assert excess.least(0.0, 1.0) < excess.least(1.0, 1.0) < 0
