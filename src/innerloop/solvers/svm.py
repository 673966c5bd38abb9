r"""Linear support vector machines with squared hinge, one against the rest: ``LinearSVC``, batched.

Per class, with :math:`y_i = \pm1` and a constant 1 appended to the features (scikit-learn penalises the
intercept),

.. math:: \min_w\; \tfrac12\|w\|^2 + C\sum_i\max(0, 1 - y_i\,w\cdot x_i)^2 .

The objective is piecewise quadratic. Newton's method on it (Keerthi and DeCoste 2005) solves
:math:`(K_{II} + I/2C)\,\beta_I = y_I` on the samples :math:`I` inside the margin, with
:math:`w = \sum_i\beta_i x_i`, and ends exactly once :math:`I` stays the same. All problems and
classes go together, in float64 Gram space.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.solvers.problems import check_finite, check_positive, check_problems, in_chunks, one_hot


class SVMResult(NamedTuple):
    """Classifiers and how well they are solved.

    Attributes:
        weights: ``(B, ways, d)``.
        bias: ``(B, ways)``; zero without an intercept.
        objective: value reached (squared hinge: summed over the one-against-rest problems).
        gap: proven bound on ``objective`` minus the minimum (duality gap).
        converged: whether ``gap ≤ tol · objective``.
        iterations: steps taken.
    """

    weights: Tensor
    bias: Tensor
    objective: Tensor
    gap: Tensor
    converged: Tensor
    iterations: Tensor


def linear_svm(
    features: Tensor,
    labels: Tensor,
    ways: int,
    C: float = 1.0,
    intercept: bool = True,
    tol: float = 1e-12,
    max_steps: int = 100,
    threads: int | None = None,
) -> SVMResult:
    """Fits one squared-hinge machine per class and problem.

    Args:
        features: ``(B, n, d)``; results have the same dtype.
        labels: ``(B, n)``, from 0 to ``ways − 1``.
        ways: number of classes.
        C: inverse penalty, per sample.
        intercept: whether to append a constant 1 to the features (penalised, as ``LinearSVC`` does).
        tol: proven relative distance from the minimum at which a problem counts as converged.
        max_steps: Newton steps at most.
        threads: cores to use; all if omitted.

    >>> x, y = torch.tensor([[[-1.0], [1.0]]]), torch.tensor([[0, 1]])
    >>> linear_svm(x, y, ways=2, C=1.0).weights.flatten()  # ½w² + 2(1 − w)² is least at 4/5
    tensor([-0.8000,  0.8000])
    """
    check_positive("C", C)
    check_problems(features, labels, ways, every_class=False)
    count, n, d = features.shape
    weights = features.new_empty(count, ways, d)

    def solve(span: slice) -> SVMResult:
        x, hot = features[span], one_hot(labels[span], ways, features)
        gram = torch.bmm(x, x.mT).double()
        check_finite(x, gram, span.start)
        found = squared_hinge(gram + float(intercept), 2 * hot.double() - 1, C, tol, max_steps)
        beta = found.beta.to(x.dtype)
        torch.bmm(beta, x, out=weights[span])
        bias = beta.sum(-1) * float(intercept)
        value, gap = found.objective.sum(1), found.gap.sum(1)
        return SVMResult(bias, bias, value, gap, gap <= tol * value, found.iterations)

    chunk = max(1, min(200, 2_000_000 // (n * n * ways)))
    return in_chunks(solve, count, chunk, threads, features.device)._replace(weights=weights)


class HingeSolution(NamedTuple):
    """``β`` (B, k, n), and objective, gap and steps per machine and problem."""

    beta: Tensor
    objective: Tensor
    gap: Tensor
    iterations: Tensor


def squared_hinge(gram: Tensor, sign: Tensor, C: float, tol: float, max_steps: int) -> HingeSolution:
    """Newton with an active set for ``(B, k)`` machines that share ``B`` Gram matrices."""
    beta = torch.zeros_like(sign)
    F = torch.zeros_like(sign)
    steps = torch.zeros(len(sign), dtype=torch.int64, device=gram.device)
    objective, gap = _certify(gram, sign, beta, F, C)
    for _ in range(max_steps):
        left = (gap.sum(1) > tol * objective.sum(1)).nonzero().flatten()
        if not len(left):
            break
        part = gram[left], sign[left]
        beta[left], F[left] = _newton_step(*part, beta[left], F[left], C)
        objective[left], gap[left] = _certify(*part, beta[left], F[left], C)
        steps[left] += 1
    return HingeSolution(beta, objective, gap, steps)


def _newton_step(gram: Tensor, sign: Tensor, beta: Tensor, F: Tensor, C: float) -> tuple[Tensor, Tensor]:
    inside = (sign * F < 1).to(gram.dtype)
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    system = inside[..., :, None] * gram[:, None] * inside[..., None, :] + eye / (2 * C)
    new = torch.cholesky_solve((inside * sign)[..., None], torch.linalg.cholesky(system)).squeeze(-1)
    d_beta = new - beta
    d_F = d_beta @ gram
    here = _objective(sign, beta, F, C)
    length = torch.ones_like(here)
    for _ in range(30):
        there = _objective(sign, beta + length * d_beta, F + length * d_F, C)
        worse = there > here * (1 + 1e-14)
        if not bool(worse.any()):
            break
        length = torch.where(worse, length / 2, length)
    return beta + length * d_beta, F + length * d_F


def _objective(sign: Tensor, beta: Tensor, F: Tensor, C: float) -> Tensor:
    slack = (1 - sign * F).clamp_min(0)
    return (0.5 * beta * F + C * slack.square()).sum(-1, keepdim=True)


def _certify(gram: Tensor, sign: Tensor, beta: Tensor, F: Tensor, C: float) -> tuple[Tensor, Tensor]:
    """Objective, and the duality gap ``½‖w − ŵ‖²`` with the dual point ``β̂ = 2C·y·max(0, 1 − yf)``."""
    slack = (1 - sign * F).clamp_min(0)
    off = beta - 2 * C * sign * slack
    objective = _objective(sign, beta, F, C).squeeze(-1)
    return objective, 0.5 * (off * (off @ gram)).sum(-1).clamp_min(0)
