r"""Both forms for several inner steps, in closed form: why a rate is divided by the root of their number.

The head is linear, so at uniform softmax ``T`` steps on the support set are T steps on a fixed quadratic with
curvature :math:`A = \tfrac{1}{CK}\Phi_u^\top\Phi_u`. With eigenpairs :math:`(\lambda_i, e_i)` of A,

.. math:: W_T = \sum_i \frac{1 - (1 - \alpha\lambda_i)^T}{\lambda_i}\, e_i e_i^\top (-g_u)

- The **gradient form** minimises the query loss of :math:`W_T` with the labels as they are. Where features
  fit labels badly, only the way that all steps go together matters: the rate falls as 1/T.
- The **trace form** assumes that some head is right, and minimises
  :math:`E\sum_i (1 - \alpha\lambda_i)^{2T}\, e_i^\top S_t e_i`: what limits it is the largest eigenvalue,
  however many steps there are, so the rate hardly falls.

Their geometric mean falls as :math:`1/\sqrt{T}`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.theory.rate.moments import centred, check_stack

PLACES = 240
"""Rates that are tried between the smallest and the largest, before the best is refined."""
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
