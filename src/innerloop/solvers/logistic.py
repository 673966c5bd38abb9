r"""Thousands of logistic regressions at once: scikit-learn's ``LogisticRegression``, batched.

.. math:: \min_{W,b}\; C\sum_i -\log\operatorname{softmax}(Wx_i + b)_{y_i} + \tfrac12\|W\|^2

with an unpenalised intercept, as in scikit-learn (multinomial, ``l2``, any solver). With two classes
scikit-learn penalises the one difference :math:`w = w_1 - w_0` instead; so do we, and give :math:`\mp w/2`.

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
from innerloop.solvers.problems import check_finite, check_positive, check_problems, in_chunks, one_hot
from innerloop.solvers.softmax_dual import SoftmaxProblem, Solution

TOLERANCE = {torch.float32: 1e-8, torch.float64: 1e-10}
FIRST, SECOND = 24, 48  # conjugate-gradient steps in float32 and in float64
STIFF = 500.0  # C·‖x‖²/k beyond which float32 cannot certify 1e-8, from tests: float64 at once
OFFSET = {torch.float32: 30.0, torch.float64: 1e6}  # ‖x‖² over ‖x − x̄‖² that needs centring before squaring


class LogisticResult(NamedTuple):
    r"""Classifiers and how well they are solved.

    Attributes:
        weights: ``(B, ways, d)``.
        bias: ``(B, ways)``; zero without an intercept.
        objective: value reached, in scikit-learn's scaling :math:`C\sum\ell + \tfrac12\|W\|^2`.
        gap: proven bound on ``objective`` minus the minimum (duality gap).
        converged: whether ``gap ≤ tol · objective``.
        iterations: steps taken, of all solvers together.
    """

    weights: Tensor
    bias: Tensor
    objective: Tensor
    gap: Tensor
    converged: Tensor
    iterations: Tensor


def logistic(
    features: Tensor,
    labels: Tensor,
    ways: int,
    C: float = 1.0,
    intercept: bool = True,
    tol: float | None = None,
    max_steps: int = 100,
    threads: int | None = None,
) -> LogisticResult:
    """Fits one classifier per problem; gradients flow to ``features`` (implicit differentiation).

    Args:
        features: ``(B, n, d)``, float32 or float64; results have the same dtype.
        labels: ``(B, n)``, from 0 to ``ways − 1``; with an intercept every class needs an example.
        ways: number of classes.
        C: inverse penalty.
        intercept: whether to fit one (unpenalised).
        tol: proven relative distance from the minimum at which a problem counts as converged; 1e-8 in
            float32 and 1e-10 in float64 if omitted.
        max_steps: Newton steps for what conjugate gradients leave over.
        threads: cores to use; all if omitted.

    >>> x, y = torch.tensor([[[-1.0], [1.0]]]), torch.tensor([[0, 1]])
    >>> fit = logistic(x, y, ways=2, C=1.0)
    >>> fit.weights.flatten(), bool(fit.converged)  # scikit-learn: coef_ = 0.6748, their difference
    (tensor([-0.3374,  0.3374]), True)
    """
    check_positive("C", C)
    check_problems(features, labels, ways, every_class=intercept)
    count, n, d = features.shape
    inputs, tol = features.detach(), TOLERANCE[features.dtype] if tol is None else tol
    hot = one_hot(labels, ways, inputs)
    weights = inputs.new_empty(count, ways, d)
    penalty = C / 2 if ways == 2 else C  # see above: two classes count one weight vector

    def solve(span: slice) -> _Solved:
        x = inputs[span]
        found, means = solve_chunk(x, hot[span], penalty, intercept, tol, max_steps, span.start)
        torch.bmm(found.A, x, out=weights[span])
        bias = (
            found.F.mean(-1) - (found.A * means).sum(-1) if intercept else torch.zeros_like(found.A[..., 0])
        )
        return _Solved(*found, bias)

    chunk = max(1, min(500, 2_000_000 // (n * max(n, ways))))
    found = in_chunks(solve, count, chunk, threads, features.device)
    scale = C / penalty
    value, gap, bias = found.objective * scale, found.gap * scale, found.bias
    if features.requires_grad and torch.is_grad_enabled():
        weights, bias = through_softmax(features, hot, found.A, found.F, penalty, intercept)
    return LogisticResult(weights, bias, value, gap, found.converged, found.iterations)


class _Solved(NamedTuple):
    """A :class:`Solution` with the intercepts of the features as they came."""

    A: Tensor
    F: Tensor
    objective: Tensor
    gap: Tensor
    converged: Tensor
    iterations: Tensor
    bias: Tensor


def centred_gram(x: Tensor, intercept: bool) -> tuple[Tensor, Tensor]:
    """Gram matrices of the features (centred if there is an intercept), and ``x_i · x̄`` as ``(B, 1, n)``."""
    gram = torch.bmm(x, x.mT)
    rows = gram.mean(-1, keepdim=True)
    if not intercept:
        return gram, rows.mT
    centred = gram - rows
    centred.sub_(rows.mT).add_(rows.mean(-2, keepdim=True))
    whole, rest = (g.diagonal(dim1=-2, dim2=-1).sum(-1) for g in (gram, centred))
    if bool((whole > OFFSET[x.dtype] * rest).any()):  # digits were lost in the difference
        mean = x.mean(1, keepdim=True)
        rows, x = x @ mean.mT, x - mean
        centred = torch.bmm(x, x.mT)
    return centred, rows.mT


def solve_chunk(
    x: Tensor, hot: Tensor, C: float, intercept: bool, tol: float, max_steps: int, start: int = 0
) -> tuple[Solution, Tensor]:
    """Solves one chunk in Gram space; also gives ``x_i · x̄``, which the intercepts need."""
    gram, means = centred_gram(x, intercept)
    check_finite(x, gram, start)
    problem = SoftmaxProblem(gram, hot, C, intercept)
    if x.dtype == torch.float64:
        return _in_double(problem, tol, max_steps), means
    stiffness = gram.diagonal(dim1=-2, dim2=-1).mean(-1) * (C / hot.shape[1])
    steps = FIRST if bool((stiffness <= STIFF).any()) else 0
    solution = conjugate.solve(problem, tol, steps)
    left = (~solution.converged).nonzero().flatten()
    if len(left):
        again, _ = centred_gram(x[left].double(), intercept)
        before = solution.iterations[left]
        found = _in_double(SoftmaxProblem(again, hot[left].double(), C, intercept), tol, max_steps)
        solution.write(left, found._replace(iterations=found.iterations + before))
    return solution, means


def _in_double(problem: SoftmaxProblem, tol: float, max_steps: int) -> Solution:
    """Conjugate gradients, then Newton for what they leave over, from the best point so far."""
    solution = conjugate.solve(problem, tol, SECOND)
    _, k, n = problem.hot.shape
    rest = (~solution.converged).nonzero().flatten()
    for left in rest.split(max(1, 4_000_000 // (k * n * n))):  # Newton holds k matrices per problem
        begun = Solution(*(field[left] for field in solution))
        nothing = problem.C * n * math.log(k)  # the objective of all-zero scores
        useless = ~(begun.objective < nothing)  # also true of NaN
        begun.A[useless], begun.F[useless] = 0.0, 0.0
        # rounding aside, coefficients sum to zero over classes; Newton relies on it
        begun = begun._replace(A=begun.A - begun.A.mean(1, keepdim=True))
        solution.write(left, newton.solve(problem.at(left), begun, tol, max_steps))
    return solution
