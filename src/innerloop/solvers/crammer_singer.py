r"""The multi-class support vector machine of Crammer and Singer (2001), batched and differentiable.

.. math:: \min_W\;\tfrac12\|W\|^2 + C\sum_i\max_c\big(f_{ic} + 1 - y_{ic}\big) - f_{i,y_i},\qquad f_i = Wx_i

MetaOptNet's head (Lee et al. 2019) and ``LinearSVC(multi_class="crammer_singer")``. With two classes
scikit-learn reports the difference :math:`w_1 - w_0`. Its dual in :math:`A` (classes × samples),
:math:`W = AX`, is the quadratic programme

.. math::
    \min_A\;\tfrac12\langle A, AK\rangle - \langle A, Y\rangle
    \quad\text{s.t.}\quad A \le CY,\;\textstyle\sum_c A_c = 0 .

A primal-dual interior-point method (Mehrotra 1992) solves it, with the linear systems of
:mod:`innerloop.solvers.tied`. A floor under their weights makes every step a proximal one: it changes no
solution, and keeps samples that depend on one another from spoiling the digits. The dual point is feasible
throughout, and the gap is a sum of non-negative terms.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

import innerloop.solvers.tied as tied
from innerloop.solvers.implicit import implicit
from innerloop.solvers.problems import check_finite, check_positive, check_problems, in_chunks, one_hot
from innerloop.solvers.returned import AIM, rounded
from innerloop.solvers.svm import SVMResult

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-8}
KEEP = 0.995  # how far towards the boundary a step may go
PATIENCE = 4  # steps without a smaller gap
PROXIMAL, EXACT = 3e-4, 1e-10  # floors under the weights: in the steps, and in the derivative


class DualSVM(NamedTuple):
    """``B`` programmes: Gram matrices, one-hot labels ``(B, k, n)``, and the box."""

    gram: Tensor
    hot: Tensor
    C: float


class Iterate(NamedTuple):
    """Coefficients, room below the box, multipliers of the box; and what they prove."""

    A: Tensor
    slack: Tensor
    multiplier: Tensor
    objective: Tensor
    gap: Tensor


def crammer_singer(
    features: Tensor,
    labels: Tensor,
    ways: int,
    C: float = 1.0,
    intercept: bool = True,
    tol: float | None = None,
    max_steps: int = 60,
    threads: int | None = None,
) -> SVMResult:
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
        max_steps: interior-point steps at most.
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
        x = features[span].detach().double()
        gram = torch.bmm(x, x.mT)
        check_finite(x, gram, span.start)
        problem = DualSVM(gram + float(intercept), hot[span].double(), C)
        return measured(x, interior_point(problem, aim, max_steps), problem, intercept, features.dtype)

    chunk = max(1, min(100, 1_000_000 // (n * n * ways)))
    found = in_chunks(solve, count, chunk, threads, features.device)
    weights, bias = found.weights, found.bias
    if features.requires_grad and torch.is_grad_enabled():
        A = _differentiable(features, found, intercept)
        weights, bias = _classifier(A, features.double(), intercept, features.dtype)
    done = found.gap <= tol * found.objective
    return SVMResult(weights, bias, found.objective, found.gap, done, found.iterations)


class _Solved(NamedTuple):
    A: Tensor
    slack: Tensor
    multiplier: Tensor
    objective: Tensor
    gap: Tensor
    iterations: Tensor
    weights: Tensor
    bias: Tensor


def _classifier(A: Tensor, x: Tensor, intercept: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    there = float(intercept)
    return rounded(A @ x, A.sum(-1) * there, x.mean(1, keepdim=True) * there, dtype)


def measured(
    x: Tensor, found: tuple[Iterate, Tensor], problem: DualSVM, intercept: bool, dtype: torch.dtype
) -> _Solved:
    """Weights in the precision asked for, the objective they reach, and how far that is above the minimum."""
    best, steps = found
    weights, bias = _classifier(best.A, x, intercept, dtype)
    margin = torch.baddbmm(bias.double()[..., None] - problem.hot, weights.double(), x.mT)
    loss = (margin.amax(1) - (margin * problem.hot).sum(1)).sum(-1)
    value = 0.5 * (weights.double().square().sum((1, 2)) + bias.double().square().sum(1)) + problem.C * loss
    gap = (value - (best.objective - best.gap)).clamp_min(0)
    return _Solved(*best[:3], value, gap, steps, weights, bias)


def _differentiable(features: Tensor, found: _Solved, intercept: bool) -> Tensor:
    """The coefficients as a function of the features: stationarity ``AK − Y + multiplier + ν = 0``."""
    x = features.double()
    gram = x @ x.mT + float(intercept)
    n, d = x.shape[1:]
    weight, fixed = found.multiplier / found.slack, gram.detach()
    if n <= d:
        solve = tied.by_class(fixed, weight, EXACT)
    else:
        solve = tied.dense(fixed, weight, min(n, d + intercept), EXACT)
    return implicit(found.A, lambda A: A @ gram, solve)


def start(problem: DualSVM) -> Iterate:
    """A point strictly inside the box, with multipliers that make it stationary."""
    hot, C = problem.hot, problem.C
    k = hot.shape[1]
    A = (C / 2) * (hot - (1 - hot) / (k - 1))
    pull = hot - A @ problem.gram
    multiplier = pull - pull.amin(1, keepdim=True) + pull.std((1, 2), keepdim=True).clamp_min(1.0)
    return _judged(problem, A, C * hot - A, multiplier)


def _judged(problem: DualSVM, A: Tensor, slack: Tensor, multiplier: Tensor) -> Iterate:
    scores = A @ problem.gram
    margin = scores - problem.hot
    loss = (margin.amax(1) - (margin * problem.hot).sum(1)).sum(-1)
    objective = 0.5 * (A * scores).sum((1, 2)) + problem.C * loss
    # Σ (CY − A)(max_c − ·) is primal minus dual objective, term by term non-negative
    gap = ((problem.C * problem.hot - A) * (margin.amax(1, keepdim=True) - margin)).sum((1, 2))
    return Iterate(A, slack, multiplier, objective, gap.clamp_min(0))


def _move(problem: DualSVM, at: Iterate) -> Iterate:
    """One predictor-corrector step."""
    A, slack, multiplier = at.A, at.slack, at.multiplier
    solve = tied.by_class(problem.gram, multiplier / slack, PROXIMAL)
    size = slack[0].numel()
    mu = (slack * multiplier).sum((1, 2), keepdim=True) / size
    # zero up to what is constant over classes, and rounding: put right in passing
    stationarity = A @ problem.gram - problem.hot + multiplier

    def direction(complementarity: Tensor) -> tuple[Tensor, Tensor]:
        dA = solve(-stationarity - complementarity / slack)
        return dA, (complementarity + multiplier * dA) / slack

    dA, dm = direction(-slack * multiplier)
    length = torch.minimum(_room(slack, -dA), _room(multiplier, dm))
    ahead = ((slack - length * dA) * (multiplier + length * dm)).sum((1, 2), keepdim=True) / size
    centre = (ahead / mu) ** 3 * mu
    dA, dm = direction(centre - slack * multiplier + dA * dm)
    length = (KEEP * torch.minimum(_room(slack, -dA), _room(multiplier, dm))).clamp_max(1.0)
    A = A + length * dA
    slack = (problem.C * problem.hot - A).clamp_min(1e-14 * problem.C)
    return _judged(problem, A, slack, multiplier + length * dm)


def _room(value: Tensor, change: Tensor) -> Tensor:
    """The longest step, at most ``1/KEEP``, that keeps ``value + step · change`` non-negative."""
    limit = torch.where(change < 0, -value / change, torch.inf)
    return limit.amin((1, 2), keepdim=True).clamp_max(1 / KEEP)


def interior_point(problem: DualSVM, tol: float, max_steps: int) -> tuple[Iterate, Tensor]:
    """Best points, and steps until every gap is at most ``tol`` times the objective or rounding rules."""
    state = start(problem)
    best = Iterate(*(field.clone() for field in state))
    steps = torch.zeros(len(problem.hot), dtype=torch.int64, device=problem.hot.device)
    idle = torch.zeros_like(steps)  # steps in a row that brought nothing
    for _ in range(max_steps):
        left = ((best.gap > tol * best.objective) & (idle < PATIENCE)).nonzero().flatten()
        if not len(left):
            break
        part = DualSVM(problem.gram[left], problem.hot[left], problem.C)
        moved = _move(part, Iterate(*(field[left] for field in state)))
        better = moved.gap < best.gap[left]
        for now, kept, new in zip(state, best, moved, strict=True):
            now[left] = new
            kept[left[better]] = new[better]
        steps[left] += 1
        idle[left] = torch.where(better, 0, idle[left] + 1)
    return best, steps
