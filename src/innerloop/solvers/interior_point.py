r"""An interior-point method for the dual of Crammer and Singer's machine, on Gram matrices.

.. math::
    \min_A\;\tfrac12\langle A, AK\rangle - \langle A, Y\rangle
    \quad\text{s.t.}\quad A \le CY,\;\textstyle\sum_c A_c = 0 .

Mehrotra's (1992) primal-dual method, with the linear systems of :mod:`innerloop.solvers.tied`. A floor under
their weights makes every step a proximal one: it changes no solution, and keeps samples that depend on one
another from spoiling the digits. The dual point is feasible throughout, and the gap is a sum of non-negative
terms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

import innerloop.solvers.tied as tied

KEEP = 0.995  # how far towards the boundary a step may go
PATIENCE = 4  # steps without a smaller gap
PROXIMAL = 3e-4  # floor under the weights in the steps
FLOORS = (3e-4, 1e-6, 1e-8)  # the same where Gram matrices are singular, in turn


class DualSVM(NamedTuple):
    """``B`` programmes: Gram matrices, one-hot labels ``(B, k, n)``, the box, and the most rank there is."""

    gram: Tensor
    hot: Tensor
    C: float
    rank: int


class Iterate(NamedTuple):
    """Coefficients, room below the box, multipliers of the box; and what they prove."""

    A: Tensor
    slack: Tensor
    multiplier: Tensor
    objective: Tensor
    gap: Tensor


System = Callable[[DualSVM, Tensor], tied.Solve]
"""Programmes and weights of their inequalities to the linear system of a step."""


def start(problem: DualSVM) -> Iterate:
    """A point strictly inside the box, with multipliers that make it stationary."""
    hot, C = problem.hot, problem.C
    k = hot.shape[1]
    A = (C / 2) * (hot - (1 - hot) / (k - 1))
    pull = hot - A @ problem.gram
    multiplier = pull - pull.amin(1, keepdim=True) + pull.std((1, 2), keepdim=True).clamp_min(1.0)
    return judged(problem, A, C * hot - A, multiplier)


def judged(problem: DualSVM, A: Tensor, slack: Tensor, multiplier: Tensor) -> Iterate:
    """A feasible point with its objective, and its proven distance from the minimum."""
    scores = A @ problem.gram
    margin = scores - problem.hot
    loss = (margin.amax(1) - (margin * problem.hot).sum(1)).sum(-1)
    objective = 0.5 * (A * scores).sum((1, 2)) + problem.C * loss
    # Σ (CY − A)(max_c − ·) is primal minus dual objective, term by term non-negative
    gap = ((problem.C * problem.hot - A) * (margin.amax(1, keepdim=True) - margin)).sum((1, 2))
    return Iterate(A, slack, multiplier, objective, gap.clamp_min(0))


def _plainly(problem: DualSVM, weight: Tensor) -> tied.Solve:
    return tied.by_class(problem.gram, weight, PROXIMAL)


def _move(problem: DualSVM, at: Iterate, system: System = _plainly) -> Iterate:
    """One predictor-corrector step."""
    A, slack, multiplier = at.A, at.slack, at.multiplier
    solve = system(problem, multiplier / slack)
    size = slack[0].numel()
    mu = (slack * multiplier).sum((1, 2), keepdim=True) / size
    # zero up to what is constant over classes, and rounding: put right in passing
    stationarity = A @ problem.gram - problem.hot + multiplier

    def direction(complementarity: Tensor) -> tuple[Tensor, Tensor]:
        """The change of coefficients and multipliers that makes their products change as asked."""
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
    return judged(problem, A, slack, multiplier + length * dm)


def _room(value: Tensor, change: Tensor) -> Tensor:
    """The longest step, at most ``1/KEEP``, that keeps ``value + step · change`` non-negative."""
    limit = torch.where(change < 0, -value / change, torch.inf)
    return limit.amin((1, 2), keepdim=True).clamp_max(1 / KEEP)


def interior_point(problem: DualSVM, tol: float, max_steps: int) -> tuple[Iterate, Tensor]:
    """Best points, and steps until every gap is at most ``tol`` times the objective or rounding rules."""
    # where Gram matrices are singular the cheap steps may rest far from the end: then dense ones, lower
    # floors
    best, steps = _descended(problem, tol, max_steps, _plainly)
    for floor in FLOORS if problem.gram.shape[-1] > problem.rank else ():
        left = (best.gap > tol * best.objective).nonzero().flatten()
        budget = max_steps - int(steps.max())
        if not len(left) or budget <= 0:
            break
        again, more = _descended(part(problem, left), tol, budget, _densely(floor))
        kept = better(picked(best, left), again)
        best = put(best, left, kept)
        steps[left] += more
    return best, steps


def _densely(floor: float) -> System:
    return lambda problem, weight: tied.dense(problem.gram, weight, problem.rank, floor)


def _descended(problem: DualSVM, tol: float, max_steps: int, system: System) -> tuple[Iterate, Tensor]:
    """The same with one kind of steps."""
    state = best = start(problem)
    count = len(problem.hot)
    steps = torch.zeros(count, dtype=torch.int64, device=problem.hot.device)
    idle = torch.zeros_like(steps)  # steps in a row that brought nothing
    for _ in range(max_steps):
        left = ((best.gap > tol * best.objective) & (idle < PATIENCE)).nonzero().flatten()
        if not len(left):
            break
        if len(left) == count:  # nothing to pick, which is most of the time
            state = _move(problem, state, system)
            fell, best = state.gap < best.gap, better(best, state)
        else:
            moved, kept = _move(part(problem, left), picked(state, left), system), picked(best, left)
            fell = moved.gap < kept.gap
            state, best = put(state, left, moved), put(best, left, better(kept, moved))
        steps[left] += 1
        idle[left] = torch.where(fell, 0, idle[left] + 1)
    return best, steps


def better(one: Iterate, other: Iterate) -> Iterate:
    """Programme by programme the one with the smaller gap."""
    smaller = other.gap < one.gap
    wide = smaller[:, None, None]
    return Iterate(
        *(torch.where(wide if b.ndim == 3 else smaller, b, a) for a, b in zip(one, other, strict=True))
    )


def part(problem: DualSVM, which: Tensor) -> DualSVM:
    """Some of the programmes."""
    return problem._replace(gram=problem.gram[which], hot=problem.hot[which])


def picked(at: Iterate, which: Tensor) -> Iterate:
    """The points of some programmes."""
    return Iterate(*(field[which] for field in at))


def put(at: Iterate, which: Tensor, new: Iterate) -> Iterate:
    """``at`` with new points for some programmes."""
    return Iterate(*(field.index_copy(0, which, part) for field, part in zip(at, new, strict=True)))


def stopped(problem: DualSVM, steps: int) -> Iterate:
    """The point after this many steps, as a differentiable function of the Gram matrices."""
    state = start(problem)
    for _ in range(steps):
        state = _move(problem, state)
    return state
