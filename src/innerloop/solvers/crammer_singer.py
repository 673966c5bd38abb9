r"""The multi-class support vector machine of Crammer and Singer (2001), batched and differentiable.

.. math:: \min_W\;\tfrac12\|W\|^2 + C\sum_i\max_c\big(f_{ic} + 1 - y_{ic}\big) - f_{i,y_i},\qquad f_i = Wx_i

MetaOptNet's head (Lee et al. 2019) and ``LinearSVC(multi_class="crammer_singer")``. With two classes
scikit-learn reports the difference :math:`w_1 - w_0`. Its dual in :math:`A` (classes × samples),
:math:`W = AX`, is the quadratic programme

.. math::
    \min_A\;\tfrac12\langle A, AK\rangle - \langle A, Y\rangle
    \quad\text{s.t.}\quad A \le CY,\;\textstyle\sum_c A_c = 0 .

which :mod:`innerloop.solvers.dual` solves.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.solvers.dual import DualSolution, derivative, face_of, solve_dual
from innerloop.solvers.implicit import implicit
from innerloop.solvers.interior_point import DualSVM, Iterate
from innerloop.solvers.problems import (
    AIM,
    LinearResult,
    check_finite,
    check_positive,
    check_problems,
    in_chunks,
    one_hot,
    rounded,
)

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-8}
EXACT = 1e-10  # floor under the weights in the derivative


def crammer_singer(
    features: Tensor,
    labels: Tensor,
    ways: int,
    C: float = 1.0,
    intercept: bool = True,
    tol: float | None = None,
    max_steps: int = 100,
    threads: int | None = None,
) -> LinearResult:
    """Fits one multi-class machine per problem; gradients flow to ``features`` (implicit differentiation).

    Args:
        features: ``(B, n, d)``; results have the same dtype, the work is done in float64.
        labels: ``(B, n)``, from 0 to ``ways − 1``.
        ways: number of classes.
        C: inverse penalty (MetaOptNet: 0.1 without intercept).
        intercept: whether to append a constant 1 to the features (penalised, as ``LinearSVC`` does).
        tol: relative distance from the minimum at which a problem counts as converged; 1e-6 in float32 (this
            loss has kinks, so that rounding of the weights counts in full) and 1e-8 in float64 if omitted.
            The returned weights have to keep it.
        max_steps: linear systems to solve at most.
        threads: cores to use; all if omitted.

    >>> x, y = torch.tensor([[[-1.0], [1.0]]]), torch.tensor([[0, 1]])
    >>> crammer_singer(x, y, ways=2, C=10.0).weights.flatten()  # margins f_1 − f_0 = 1 with the least norm
    tensor([-0.5000,  0.5000])
    """
    check_positive("C", C)
    check_problems(features, labels, ways, every_class=False)
    count, n, _ = features.shape
    hot = one_hot(labels, ways, features)
    tol = TOLERANCE[features.dtype] if tol is None else tol
    aim = min(AIM * tol, AIM * 1e-8)

    def solve(span: slice) -> _Solved:
        """Solves the problems of one chunk."""
        x = features[span].detach().double()
        gram = torch.bmm(x, x.mT)
        check_finite(x, gram, span.start)
        problem = DualSVM(gram + float(intercept), hot[span].double(), C, x.shape[2] + intercept)
        return measured(x, solve_dual(problem, aim, max_steps), problem, intercept, features.dtype)

    chunk = max(1, min(100, 1_000_000 // (n * n * ways)))
    solved = in_chunks(solve, count, chunk, threads, features.device)
    weights, bias = solved.weights, solved.bias
    if features.requires_grad and torch.is_grad_enabled():
        A = _differentiable(features, hot, solved, C, intercept)
        weights, bias = _classifier(A, features.double(), intercept, features.dtype)
    done = solved.gap <= tol * solved.objective
    return LinearResult(weights, bias, solved.objective, solved.gap, done, solved.iterations)


class _Solved(NamedTuple):
    A: Tensor
    slack: Tensor
    multiplier: Tensor
    objective: Tensor
    gap: Tensor
    iterations: Tensor
    weights: Tensor
    bias: Tensor
    settled: Tensor
    bound: Tensor


def _classifier(A: Tensor, x: Tensor, intercept: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    there = float(intercept)
    return rounded(A @ x, A.sum(-1) * there, x.mean(1, keepdim=True) * there, dtype)


def measured(
    x: Tensor, solution: DualSolution, problem: DualSVM, intercept: bool, dtype: torch.dtype
) -> _Solved:
    """Weights in the precision asked for, the objective they reach, and how far that is above the minimum."""
    best, steps, face = solution
    weights, bias = _classifier(best.A, x, intercept, dtype)
    margin = torch.baddbmm(bias.double()[..., None] - problem.hot, weights.double(), x.mT)
    loss = (margin.amax(1) - (margin * problem.hot).sum(1)).sum(-1)
    value = 0.5 * (weights.double().square().sum((1, 2)) + bias.double().square().sum(1)) + problem.C * loss
    gap = (value - (best.objective - best.gap)).clamp_min(0)
    settled = torch.full_like(steps, face is not None, dtype=torch.bool)
    bound = face.free == 0 if face else torch.zeros_like(problem.hot, dtype=torch.bool)
    return _Solved(*best[:3], value, gap, steps, weights, bias, settled, bound)


def _differentiable(features: Tensor, hot: Tensor, solved: _Solved, C: float, intercept: bool) -> Tensor:
    """The coefficients as a function of the features."""
    x = features.double()
    gram, rank = x @ x.mT + float(intercept), x.shape[2] + intercept
    problem = DualSVM(gram.detach(), hot.double(), C, rank)
    face = face_of(problem, solved.bound) if bool(solved.settled.all()) else None
    solve = derivative(problem.gram, Iterate(*solved[:5]), face, rank, EXACT)
    return implicit(solved.A, lambda at: at @ gram, solve)
