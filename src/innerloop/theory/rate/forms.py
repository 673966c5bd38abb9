r"""Closed forms for mixed linear regression: solutions, risk against α, best α, distance after adaptation.

Tasks :math:`y = \Phi_i a_i`. With :math:`M_i(\alpha) = C_i^\top C_i`,
:math:`C_i = \Phi_{t,i}(I - \tfrac{2\alpha}{K}S_{u,i})`,

.. math:: w_m(\alpha) = \Big(\sum_i M_i\Big)^{-1}\sum_i M_i a_i, \qquad w_r = w_m(0) \qquad (3.1)

and the empirical risk :math:`\tfrac1{NK}\sum_i (w - a_i)^\top M_i (w - a_i)`. All of these are quadratic in
α, so three sums over tasks of each kind (:class:`Sums`) give every α at once. Rates are for the mean without
½ (``mse``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.theory.rate.moments import centred, check_stack


class Sums(NamedTuple):
    r"""Sums over tasks, each stacked over the powers 0, 1, 2 of α in :math:`M(\alpha)`.

    Attributes:
        matrix: ``(3, d, d)``, of :math:`M`.
        vector: ``(3, d)``, of :math:`Ma`.
        scalar: ``(3,)``, of :math:`a^\top Ma`.
        samples: how many query samples stand behind them.
    """

    matrix: Tensor
    vector: Tensor
    scalar: Tensor
    samples: int

    def at(self, rate: float) -> tuple[Tensor, Tensor, Tensor]:
        """The three sums at one rate."""
        powers = self.matrix.new_tensor([1.0, rate, rate**2])
        return (
            torch.einsum("p,pij->ij", powers, self.matrix),
            torch.einsum("p,pi->i", powers, self.vector),
            powers @ self.scalar,
        )


def task_sums(features: Tensor, optima: Tensor, query: Tensor | None = None) -> Sums:
    r"""The sums that every closed form needs; add them up over chunks with :func:`add_sums`.

    :math:`M = S_t - \tfrac{2\alpha}{K}(S_uS_t + S_tS_u) + \tfrac{4\alpha^2}{K^2}S_uS_tS_u`.

    Args:
        features: ``(N, K, d)``, adapted to.
        optima: ``(N, d)``.
        query: ``(N, k2, d)``, judged on; the same samples if omitted.
    """
    check_stack(features)
    k = features.shape[1]
    s_u = features.mT @ features
    s_t = s_u if query is None else query.mT @ query
    both = s_u @ s_t
    terms = torch.stack([s_t, -(2 / k) * (both + both.mT), (4 / k**2) * (both @ s_u)], 1)
    vectors = torch.einsum("npij,nj->npi", terms, optima)
    judged = features if query is None else query
    return Sums(
        terms.sum(0),
        vectors.sum(0),
        torch.einsum("npi,ni->p", vectors, optima),
        judged.shape[0] * judged.shape[1],
    )


def labelled_sums(support: Tensor, y_support: Tensor, query: Tensor, y_query: Tensor) -> Sums:
    r"""The same sums for any targets, noisy or not realisable: numbers with one column.

    The error after the step is :math:`Cw - b` with
    :math:`b = y_t - \tfrac{2\alpha}{K}\Phi_t\Phi_u^\top y_u`; the sums are of :math:`C^\top C`,
    :math:`C^\top b` and :math:`b^\top b`.

    Args:
        support: ``(N, K, d)``.
        y_support: ``(N, K)``.
        query: ``(N, k2, d)``.
        y_query: ``(N, k2)``.
    """
    check_stack(support)
    c = 2 / support.shape[1]
    s_u, s_t = support.mT @ support, query.mT @ query
    v_u, v_t = (torch.einsum("nkd,nk->nd", x, y) for x, y in ((support, y_support), (query, y_query)))
    both = s_u @ s_t
    matrix = torch.stack([s_t.sum(0), -c * (both + both.mT).sum(0), c**2 * (both @ s_u).sum(0)])
    first = torch.einsum("nij,nj->i", s_u, v_t) + torch.einsum("nij,nj->i", s_t, v_u)
    vector = torch.stack([v_t.sum(0), -c * first, c**2 * torch.einsum("nij,nj->i", both, v_u)])
    last = torch.einsum("ni,nij,nj->", v_u, s_t, v_u)
    scalar = torch.stack([y_query.square().sum(), -2 * c * (v_t * v_u).sum(), c**2 * last])
    return Sums(matrix, vector, scalar, query.shape[0] * query.shape[1])


def add_sums(parts: Sequence[Sums]) -> Sums:
    """The sums of several chunks of tasks together."""
    *sums, samples = zip(*parts, strict=True)
    return Sums._make([*(torch.stack(each).sum(0) for each in sums), sum(samples)])


def maml_solution(sums: Sums, rate: float) -> Tensor:
    r""":math:`w_m(\alpha)` (eq. 3.1); least norm where the tasks do not determine it.

    >>> features = torch.tensor([[[1.0]], [[2.0]]], dtype=torch.float64)
    >>> sums = task_sums(features, torch.tensor([[1.0], [0.0]], dtype=torch.float64))
    >>> maml_solution(sums, 0.0)                      # Σ S a / Σ S = 1/(1 + 4)
    tensor([0.2000], dtype=torch.float64)
    """
    matrix, vector, _ = sums.at(rate)
    return torch.linalg.pinv(matrix, hermitian=True) @ vector


def erm_solution(sums: Sums) -> Tensor:
    r""":math:`w_r = w_m(0)`: what one gets without an inner loop."""
    return maml_solution(sums, 0.0)


def trajectory(sums: Sums, rates: Sequence[float]) -> Tensor:
    r""":math:`w_m(\alpha)` for many rates, ``(len(rates), d)`` (Figures 1 and 7)."""
    return torch.stack([maml_solution(sums, rate) for rate in rates])


def risk(sums: Sums, w: Tensor, rate: float) -> float:
    r"""Mean squared error after one step of size α from ``w``, over the tasks behind ``sums``.

    On training tasks this is :math:`\hat L_m` (eq. 2.5), on fresh ones an estimate of :math:`L_m` (eq. 2.4).

    Args:
        sums: sums over the tasks.
        w: where the step starts, ``(d,)``.
        rate: α.
    """
    matrix, vector, scalar = sums.at(rate)
    return float(w @ matrix @ w - 2 * w @ vector + scalar) / sums.samples


def risk_curve(train: Sums, rates: Sequence[float], test: Sums | None = None) -> list[float]:
    r"""Risk of :math:`w_m(\alpha)` against α, the same α in training and testing.

    On ``train`` itself if there is no ``test``.

    Args:
        train: sums over the training tasks.
        rates: values of α.
        test: sums over the tasks that are judged on; ``train`` if omitted.
    """
    judged = train if test is None else test
    return [risk(judged, maml_solution(train, rate), rate) for rate in rates]


def minimise(value: Callable[[float], float], low: float, high: float, tolerance: float = 1e-6) -> float:
    """The least of a function on an interval: 64 grid points, then golden section around the best."""
    points = torch.linspace(low, high, 64, dtype=torch.float64).tolist()
    values = [value(x) for x in points]
    best = min(range(len(points)), key=values.__getitem__)
    a, b = points[max(best - 1, 0)], points[min(best + 1, len(points) - 1)]
    ratio = (5**0.5 - 1) / 2
    while b - a > tolerance * max(abs(a), abs(b), 1e-300):
        c, d = b - ratio * (b - a), a + ratio * (b - a)
        a, b = (a, d) if value(c) < value(d) else (c, b)
    return (a + b) / 2


def best_rate(train: Sums, high: float, test: Sums | None = None, low: float = 0.0) -> float:
    r""":math:`\alpha^*(N, K)` by search: the α whose :math:`w_m(\alpha)` has the least risk.

    Args:
        train: sums of the ``N`` training tasks.
        high: upper end of the search; ``1/(2v)`` is a safe one (:func:`.estimate.bounds`).
        test: sums of fresh tasks: the population risk of Theorem 1. If omitted, the training risk (H.3).
        low: lower end; negative to look for negative rates (Bernacchia 2021).
    """
    judged = train if test is None else test
    return minimise(lambda rate: risk(judged, maml_solution(train, rate), rate), low, high)


def adapted_distance(
    features: Tensor, optima: Tensor, w: Tensor, rate: float, steps: Sequence[int]
) -> list[float]:
    r"""The average distance under fast adaptation (Definition 1), :math:`F_t(w) = E\|w_T^t - a_T\|^2`.

    :math:`w^t - a = (I - \tfrac{2\eta}{K}S)^t(w - a)`; one eigendecomposition per task serves all ``t``.

    Args:
        features: ``(N, K, d)``.
        optima: ``(N, d)``.
        w: ``(d,)``, where adaptation starts.
        rate: η.
        steps: the values of ``t``.
    """
    start, _, shrink = _along(features, optima, w, rate)
    return [float((shrink**t * start).sum(1).mean()) for t in steps]


def _along(features: Tensor, optima: Tensor, w: Tensor, rate: float) -> tuple[Tensor, Tensor, Tensor]:
    """Along the eigenvectors of ``S``: squared distances, eigenvalues, what a step leaves of the squares."""
    check_stack(features)
    values, vectors = torch.linalg.eigh(features.mT @ features)
    start = torch.einsum("nij,ni->nj", vectors, w - optima).square()
    return start, values, (1 - 2 * rate / features.shape[1] * values).square()


def adapted_loss(
    features: Tensor, optima: Tensor, w: Tensor, rate: float, steps: Sequence[int]
) -> list[float]:
    r"""The mean over tasks of :math:`\|\Phi w^t - y\|^2` after ``t`` steps of size η (Figure 5a).

    Args:
        features: ``(tasks, K, d)``.
        optima: of the tasks, ``(tasks, d)``.
        w: where adaptation starts, ``(d,)``.
        rate: η.
        steps: values of t.
    """
    start, values, shrink = _along(features, optima, w, rate)
    return [float((shrink**t * (start * values)).sum(1).mean()) for t in steps]


def theorem2_range(least: float, largest: float, constant: float, k: int) -> float:
    r"""The largest α for which Theorem 2 is proved (as printed before eq. 3.8)."""
    gap = 4 * largest**6 - least**6
    root = (4 * largest**8 + 1.5 * constant * least**4 * gap / largest**3) ** 0.5
    return k * (root - 2 * largest**4) / (least**2 * gap)


PLACES = 240  # rates that are tried between the smallest and the largest, before the best is refined
SMALLEST, LARGEST = 1e-4, 30.0
"""Of the rates, in units of one over the median of the tasks' largest curvatures."""


class StepRates(NamedTuple):
    """The rates that both forms give for a number of steps."""

    gradient: float
    trace: float


def step_rates(
    support: Tensor,
    query: Tensor,
    support_labels: Tensor,
    query_labels: Tensor,
    *,
    classes: int,
    steps: int,
) -> StepRates:
    """The rates that minimise both forms after ``steps`` steps of a linear head, for mean cross-entropy.

    Args:
        support: features ``(tasks, k1, d)``.
        query: features ``(tasks, k2, d)``.
        support_labels: ``(tasks, k1)``.
        query_labels: ``(tasks, k2)``.
        classes: C.
        steps: T.

    >>> x = torch.eye(2, dtype=torch.float64).repeat(1, 3, 1)  # every class has its own direction
    >>> labels = torch.tensor([[0, 1] * 3])
    >>> rates = step_rates(x, x, labels, labels, classes=2, steps=1)
    >>> round(rates.gradient, 3), round(rates.trace, 3)        # one step solves it: C / λ = 2 · 2
    (4.0, 4.0)
    """
    check_stack(support, "support features")
    check_stack(query, "query features")
    if steps < 1:
        raise UserError("a rate needs at least one inner step: set {steps}=1.", names=("steps",))
    u, t = support.double(), query.double()
    one = _gradient_form(u, t, support_labels, query_labels, classes, steps)
    return StepRates(one, _trace_form(*centred(u, t), classes, steps))


def _spectrum(support: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Eigenvalues of A and eigenvectors of the Gram matrix it shares them with, of every task."""
    values, vectors = torch.linalg.eigh(support @ support.mT / (classes * support.shape[1]))
    return values.clamp(min=0.0), vectors


def _gradient_form(
    support: Tensor, query: Tensor, labels: Tensor, judged: Tensor, classes: int, steps: int
) -> float:
    values, vectors = _spectrum(support, classes)
    pull = vectors.mT @ _residuals(labels, classes)
    wanted = _residuals(judged, classes)
    seen = query @ support.mT @ vectors
    nothing = values <= 1e-12 * values.amax(1, keepdim=True)

    def loss(rate: float) -> Tensor:
        way = (1 - (1 - rate * values) ** steps) / values.masked_fill(nothing, 1.0)
        outputs = seen @ (way.masked_fill(nothing, rate * steps)[..., None] * pull)
        spread = outputs.square().sum((1, 2)) - outputs.sum(2).square().sum(1) / classes
        return (spread / (2 * classes * query.shape[1]) - (outputs * wanted).sum((1, 2))).mean()

    return _lowest(loss, values)


def _trace_form(support: Tensor, query: Tensor, classes: int, steps: int) -> float:
    values, vectors = _spectrum(support, classes)
    nothing = values <= 1e-12 * values.amax(1, keepdim=True)
    size = (query @ support.mT @ vectors).square().sum(1)
    weight = (size / values.masked_fill(nothing, 1.0)).masked_fill(nothing, 0.0)
    return _lowest(lambda rate: (weight * (1 - rate * values) ** (2 * steps)).sum(1).mean(), values)


def _residuals(labels: Tensor, classes: int) -> Tensor:
    """Minus the derivative of mean cross-entropy by the outputs, at uniform softmax."""
    one_hot = torch.nn.functional.one_hot(labels, classes).double()
    return (one_hot - 1 / classes) / labels.shape[1]


def _lowest(loss: Callable[[float], Tensor], values: Tensor) -> float:
    """The rate of the lowest loss: on a grid of even ratios, refined between the neighbours of the best."""
    unit = 1 / float(values.amax(1).median())
    low, high = SMALLEST * unit, LARGEST * unit
    for _ in range(3):
        tried = torch.logspace(math.log10(low), math.log10(high), PLACES, dtype=torch.float64)
        losses = torch.stack([loss(rate) for rate in tried.tolist()])
        best = int(losses.nan_to_num(torch.inf, torch.inf, torch.inf).argmin())
        low, high = float(tried[max(0, best - 1)]), float(tried[min(PLACES - 1, best + 1)])
    return float(tried[best])
