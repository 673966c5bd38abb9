r"""Linear support vector machines with squared hinge, one against the rest: ``LinearSVC``, batched.

Per class, with :math:`y_i = \pm1` and a constant 1 appended to the features (scikit-learn penalises the
intercept),

.. math:: \min_w\; \tfrac12\|w\|^2 + C\sum_i\max(0, 1 - y_i\,w\cdot x_i)^2 .

The objective is piecewise quadratic. Newton's method on it (Keerthi and DeCoste 2005) solves
:math:`(K_{II} + I/2C)\,\beta_I = y_I` on the samples :math:`I` inside the margin, with
:math:`w = \sum_i\beta_i x_i`, and ends exactly once :math:`I` stays the same. All problems and
classes go together, in float64 Gram space. Gram matrices of float32 features are formed in float32 where that
is good enough for the weights that are returned, and in float64 otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.solvers.inverse import spd_factor
from innerloop.solvers.problems import (
    AIM,
    LinearResult,
    check_finite,
    check_positive,
    check_problems,
    in_chunks,
    measured_scores,
    one_hot,
    rounded,
    rounding,
    with_rounding,
)

TOLERANCE = {torch.float32: 1e-8, torch.float64: 1e-10}
EXACT = 1e-12  # Newton ends exactly: a tighter aim than the tolerance costs no step worth mentioning
PATIENCE = 3  # steps that bring nothing


def linear_svm(
    features: Tensor,
    labels: Tensor,
    ways: int,
    C: float = 1.0,
    intercept: bool = True,
    tol: float | None = None,
    max_steps: int = 100,
    threads: int | None = None,
) -> LinearResult:
    """Fits one squared-hinge machine per class and problem.

    Args:
        features: ``(B, n, d)``; results have the same dtype.
        labels: ``(B, n)``, from 0 to ``ways − 1``.
        ways: number of classes.
        C: inverse penalty, per sample.
        intercept: whether to append a constant 1 to the features (penalised, as ``LinearSVC`` does).
        tol: relative distance from the minimum at which a problem counts as converged; 1e-8 in float32 and
            1e-10 in float64 if omitted. The returned weights have to keep it.
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

    tol = TOLERANCE[features.dtype] if tol is None else tol

    def solve(span: slice) -> LinearResult:
        """Solves the problems of one chunk, and writes their weights in place."""
        sign = 2 * one_hot(labels[span], ways, features).double() - 1
        return solve_chunk(features[span], sign, C, intercept, tol, max_steps, weights[span], span.start)

    chunk = max(1, min(200, 2_000_000 // (n * n * ways)))
    return in_chunks(solve, count, chunk, threads, features.device)._replace(weights=weights)


def solve_chunk(
    x: Tensor,
    sign: Tensor,
    C: float,
    intercept: bool,
    tol: float,
    max_steps: int,
    weights: Tensor,
    start: int = 0,
) -> LinearResult:
    """Solves one chunk and writes ``weights``; what rounding may have spoilt, in float64 again."""
    gram = torch.bmm(x, x.mT) + float(intercept)
    check_finite(x, gram, start)
    aim = min(AIM * tol, EXACT)
    solution = squared_hinge(gram.double(), sign, C, aim, max_steps)
    beta = solution.beta.to(x.dtype)
    torch.bmm(beta, x, out=weights)
    bias = beta.sum(-1) * float(intercept)
    bend = 2 * C * (solution.beta != 0)
    squares = gram.diagonal(dim1=-2, dim2=-1)
    value = solution.objective.sum(1)
    gap = with_rounding(solution.gap.sum(1), rounding(solution.beta, squares, bend.double()))
    out = LinearResult(bias, bias, value, gap, gap <= tol * value, solution.iterations)
    left = (~out.converged).nonzero().flatten()
    if len(left):
        wide = x[left].double()
        if x.dtype == torch.float64:
            again = HingeSolution(*(field[left] for field in solution))
        else:
            again = squared_hinge(wide @ wide.mT + float(intercept), sign[left], C, aim, max_steps)
        new = measured(wide, again, sign[left], C, intercept, tol, x.dtype)
        weights[left] = new.weights
        new = new._replace(weights=new.bias)
        for old, field in zip(out, new, strict=True):
            old[left] = field
    return out


def measured(
    x: Tensor,
    solution: HingeSolution,
    sign: Tensor,
    C: float,
    intercept: bool,
    tol: float,
    dtype: torch.dtype,
) -> LinearResult:
    """Weights in the precision asked for, the objective they reach, and how far that is above the minimum."""
    mean = x.mean(1, keepdim=True)
    exact, shift = solution.beta @ x, solution.beta.sum(-1) * float(intercept)
    weights, bias = rounded(exact, shift, mean * float(intercept), dtype)
    scores = measured_scores(weights, bias, x - mean, mean)
    size = weights.double().square().sum((1, 2)) + bias.double().square().sum(1)
    value = 0.5 * size + C * (1 - sign * scores).clamp_min(0).square().sum((1, 2))
    gap = (value - _lower_bound(solution, sign, x, intercept, C)).clamp_min(0)
    return LinearResult(weights, bias, value, gap, gap <= tol * value, solution.iterations)


def _lower_bound(solution: HingeSolution, sign: Tensor, x: Tensor, intercept: bool, C: float) -> Tensor:
    """The better of two proven bounds on the minimum, per problem, summed over its machines."""
    # any β with yβ ≥ 0 has the dual value Σ yβ − ½‖w‖² − Σ β²/4C, which errs by a square of what β is off;
    # the solver's certificate goes back and forth through a large Gram matrix, and does not
    beta = sign * (sign * solution.beta).clamp_min(0)
    size = (beta @ x).square().sum(-1) + beta.sum(-1).square() * float(intercept)
    dual = (sign * beta).sum(-1) - 0.5 * size - beta.square().sum(-1) / (4 * C)
    return torch.maximum(dual, solution.objective - solution.gap).sum(1)


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
    idle = torch.zeros_like(steps)  # steps in a row that brought nothing: rounding is all that is left
    objective, gap = _certify(gram, sign, beta, F, C)
    for _ in range(max_steps):
        left = ((gap.sum(1) > tol * objective.sum(1)) & (idle < PATIENCE)).nonzero().flatten()
        if not len(left):
            break
        part = gram[left], sign[left]
        before = objective[left].sum(1), gap[left].sum(1)
        beta[left], F[left] = _newton_step(*part, beta[left], F[left], C)
        objective[left], gap[left] = _certify(*part, beta[left], F[left], C)
        stuck = (objective[left].sum(1) > before[0] * (1 - 1e-12)) & (gap[left].sum(1) > 0.5 * before[1])
        idle[left] = torch.where(stuck, idle[left] + 1, 0)
        steps[left] += 1
    return HingeSolution(beta, objective, gap, steps)


def _newton_step(gram: Tensor, sign: Tensor, beta: Tensor, F: Tensor, C: float) -> tuple[Tensor, Tensor]:
    inside = (sign * F < 1).to(gram.dtype)
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    system = inside[..., :, None] * gram[:, None] * inside[..., None, :] + eye / (2 * C)
    factor, failed = spd_factor(system)
    new = torch.cholesky_solve((inside * sign)[..., None], factor).squeeze(-1)
    d_beta = torch.where(failed[..., None], 0.0, new - beta)
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
