r"""Thousands of logistic regressions at once, with one row of weights per class however many there are.

.. math:: \min_{W,b}\; C\sum_i -\log\operatorname{softmax}(Wx_i + b)_{y_i} + \tfrac12\|W\|^2

with an unpenalised intercept: scikit-learn's ``LogisticRegression(C=C)`` from three classes up. Of two it
penalises the one difference :math:`w = w_1 - w_0`; here the rows are :math:`\mp w/2`, whose penalty is half
as much, so that the solution is that of ``LogisticRegression(C=2 * C)``.

Three solvers take turns, each on what the one before could not certify: conjugate gradients in the features'
own precision, the same in float64, and Newton in float64. All work on Gram matrices
(:mod:`innerloop.solvers.softmax_dual`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

import innerloop.solvers.conjugate as conjugate
import innerloop.solvers.newton as newton
from innerloop.solvers.implicit import through_softmax
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
from innerloop.solvers.softmax_dual import SoftmaxProblem, SoftmaxSolution, dual_value

TOLERANCE = {torch.float32: 1e-8, torch.float64: 1e-10}
FIRST, SECOND = 24, 48  # conjugate-gradient steps in float32 and in float64
STIFF = 500.0  # C·‖x‖²/k beyond which float32 cannot certify 1e-8, from tests: float64 at once
OFFSET = {torch.float32: 30.0, torch.float64: 1e6}  # ‖x‖² over ‖x − x̄‖² that needs centring before squaring


def logistic(
    features: Tensor,
    labels: Tensor,
    ways: int,
    C: float | Tensor = 1.0,
    intercept: bool = True,
    tol: float | None = None,
    max_steps: int = 100,
    threads: int | None = None,
) -> LinearResult:
    """Fits one classifier per problem; gradients flow to ``features`` (implicit differentiation).

    Args:
        features: ``(B, n, d)``, float32 or float64; results have the same dtype.
        labels: ``(B, n)``, from 0 to ``ways − 1``; with an intercept every class needs an example.
        ways: number of classes.
        C: inverse penalty, the same problem for any number of classes; ``(B, n)`` gives every sample its own.
        intercept: whether to fit one (unpenalised).
        tol: proven relative distance from the minimum at which a problem counts as converged; 1e-8 in
            float32 and 1e-10 in float64 if omitted.
        max_steps: Newton steps for what conjugate gradients leave over.
        threads: cores to use; all if omitted.

    >>> x, y = torch.tensor([[[-1.0], [1.0]]]), torch.tensor([[0, 1]])
    >>> fit = logistic(x, y, ways=2, C=1.0)
    >>> fit.weights.flatten(), bool(fit.converged)
    (tensor([-0.5213,  0.5213]), True)
    """
    check_positive("C", float(C.min()) if isinstance(C, Tensor) else C)
    check_problems(features, labels, ways, every_class=intercept)
    count, n, d = features.shape
    inputs, tol = features.detach(), TOLERANCE[features.dtype] if tol is None else tol
    hot = one_hot(labels, ways, inputs)
    weights = inputs.new_empty(count, ways, d)
    penalty = C[:, None].to(inputs) if isinstance(C, Tensor) else C

    def solve(span: slice) -> LogisticSolution:
        """Solves the problems of one chunk, and writes their weights in place."""
        each = penalty[span] if isinstance(penalty, Tensor) else penalty
        return solve_chunk(
            inputs[span], hot[span], each, intercept, tol, max_steps, weights[span], span.start
        )

    chunk = max(1, min(500, 2_000_000 // (n * max(n, ways))))
    solved = in_chunks(solve, count, chunk, threads, features.device)
    bias = solved.bias
    if features.requires_grad and torch.is_grad_enabled():
        weights, bias = through_softmax(features, hot, solved.A, solved.F, penalty, intercept)
    return LinearResult(weights, bias, solved.objective, solved.gap, solved.converged, solved.iterations)


class LogisticSolution(NamedTuple):
    """A :class:`SoftmaxSolution` with intercepts for features as they came; the gap is of what is given."""

    A: Tensor
    F: Tensor
    objective: Tensor
    gap: Tensor
    converged: Tensor
    iterations: Tensor
    bias: Tensor


def centred_gram(x: Tensor, intercept: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Gram matrices (centred if there is an intercept), ``x_i · x̄`` as ``(B, 1, n)``, and ``‖x_i‖²``."""
    gram = torch.bmm(x, x.mT)
    rows, squares = gram.mean(-1, keepdim=True), gram.diagonal(dim1=-2, dim2=-1)
    if not intercept:
        return gram, rows.mT, squares
    centred = gram - rows
    centred.sub_(rows.mT).add_(rows.mean(-2, keepdim=True))
    whole, rest = squares.sum(-1), centred.diagonal(dim1=-2, dim2=-1).sum(-1)
    if bool((whole > OFFSET[x.dtype] * rest).any()):  # digits were lost in the difference
        mean = x.mean(1, keepdim=True)
        rows, x = x @ mean.mT, x - mean
        centred = torch.bmm(x, x.mT)
    return centred, rows.mT, squares


def solve_chunk(
    x: Tensor,
    hot: Tensor,
    C: float | Tensor,
    intercept: bool,
    tol: float,
    max_steps: int,
    weights: Tensor,
    start: int = 0,
) -> LogisticSolution:
    """Solves one chunk in Gram space and writes ``weights``; what rounding may have spoilt, in float64."""
    gram, means, squares = centred_gram(x, intercept)
    check_finite(x, gram, start)
    problem = SoftmaxProblem(gram, hot, C, intercept)
    if x.dtype == torch.float64:
        solution = _in_double(problem, AIM * tol, max_steps)
    else:
        most = C.amax((1, 2)) if isinstance(C, Tensor) else C
        stiffness = gram.diagonal(dim1=-2, dim2=-1).mean(-1) * (most / hot.shape[1])
        steps = FIRST if bool((stiffness <= STIFF).any()) else 0
        solution = conjugate.solve(problem, AIM * tol, steps)
    A, F, value, gap, proven, iterations = solution
    # at the solution C·p(1 − p) ≤ |A|, and the softmax bends at most twice as much
    gap = with_rounding(gap, rounding(A, squares, 2 * A.abs()))
    done = proven & (gap <= tol * value)
    torch.bmm(A, x, out=weights)
    bias = F.mean(-1) - (A * means).sum(-1) if intercept else torch.zeros_like(A[..., 0])
    left = (~done).nonzero().flatten()
    if not len(left):
        return LogisticSolution(A, F, value, gap, done, iterations, bias)
    if x.dtype == torch.float64:
        begun = SoftmaxSolution(*(field[left] for field in solution))
        again, weights[left] = measured(x[left], begun, problem.at(left), tol)
    else:
        wide = x[left].double()
        again_C = C[left].double() if isinstance(C, Tensor) else C
        exact = SoftmaxProblem(centred_gram(wide, intercept)[0], hot[left].double(), again_C, intercept)
        begun = _in_double(exact, AIM * tol, max_steps)
        begun = begun._replace(iterations=begun.iterations + iterations[left])
        again, weights[left] = measured(wide, begun, exact, tol, x.dtype)
        A, F = A.double(), F.double()  # the digits that implicit gradients start from
    kept = LogisticSolution(A, F, value, gap, done, iterations, bias)
    for old, new in zip(kept, again, strict=True):
        old[left] = new.to(old.dtype)
    return kept


def measured(
    x: Tensor,
    solution: SoftmaxSolution,
    problem: SoftmaxProblem,
    tol: float,
    dtype: torch.dtype = torch.float64,
) -> tuple[LogisticSolution, Tensor]:
    """Weights and intercepts in the precision asked for, and what they reach, in float64."""
    A, F, value, gap, _, iterations = solution
    mean = x.mean(1, keepdim=True) if problem.intercept else torch.zeros_like(x[:, :1])
    centred = x - mean
    exact = A @ centred
    level = F.mean(-1) if problem.intercept else torch.zeros_like(F[..., 0])
    weights, bias = rounded(exact, level - (exact @ mean.mT).squeeze(-1), mean, dtype)
    log_p = torch.log_softmax(measured_scores(weights, bias, centred, mean), 1)
    reached = 0.5 * weights.double().square().sum((1, 2)) - problem.total(problem.hot * log_p)
    gap = (reached - torch.maximum(value - gap, dual_value(problem, A, centred))).clamp_min(0)
    return LogisticSolution(A, F, reached, gap, gap <= tol * reached, iterations, bias), weights


def _in_double(problem: SoftmaxProblem, tol: float, max_steps: int) -> SoftmaxSolution:
    """Conjugate gradients, then Newton for what they leave over, from the best point so far."""
    solution = conjugate.solve(problem, tol, SECOND)
    _, k, n = problem.hot.shape
    rest = (~solution.converged).nonzero().flatten()
    for left in rest.split(max(1, 4_000_000 // (k * n * n))):  # Newton holds k matrices per problem
        begun = SoftmaxSolution(*(field[left] for field in solution))
        nothing = problem.at(left).total(problem.hot[left]) * math.log(k)  # the objective of all-zero scores
        useless = ~(begun.objective < nothing)  # also true of NaN
        begun.A[useless], begun.F[useless] = 0.0, 0.0
        # rounding aside, coefficients sum to zero over classes; Newton relies on it
        begun = begun._replace(A=begun.A - begun.A.mean(1, keepdim=True))
        solution.write(left, newton.solve(problem.at(left), begun, tol, max_steps))
    return solution
