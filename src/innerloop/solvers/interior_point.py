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

from typing import NamedTuple

import torch
from torch import Tensor

import innerloop.solvers.tied as tied

KEEP = 0.995  # how far towards the boundary a step may go
PATIENCE = 4  # steps without a smaller gap
PROXIMAL = 3e-4  # floor under the weights in the steps


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
    state = best = start(problem)
    count = len(problem.hot)
    steps = torch.zeros(count, dtype=torch.int64, device=problem.hot.device)
    idle = torch.zeros_like(steps)  # steps in a row that brought nothing
    for _ in range(max_steps):
        left = ((best.gap > tol * best.objective) & (idle < PATIENCE)).nonzero().flatten()
        if not len(left):
            break
        if len(left) == count:  # nothing to pick, which is most of the time
            state, best, better = _improved(problem, state, best)
        else:
            part = problem._replace(gram=problem.gram[left], hot=problem.hot[left])
            *moved, better = _improved(part, _picked(state, left), _picked(best, left))
            state, best = (_put(old, left, new) for old, new in zip((state, best), moved, strict=True))
        steps[left] += 1
        idle[left] = torch.where(better, 0, idle[left] + 1)
    return best, steps


def _improved(problem: DualSVM, state: Iterate, best: Iterate) -> tuple[Iterate, Iterate, Tensor]:
    """The next point, the best so far, and for which programmes that is the next."""
    moved = _move(problem, state)
    better = moved.gap < best.gap
    wide = better[:, None, None]
    best = Iterate(
        *(
            torch.where(wide if new.ndim == 3 else better, new, old)
            for new, old in zip(moved, best, strict=True)
        )
    )
    return moved, best, better


def _picked(at: Iterate, which: Tensor) -> Iterate:
    return Iterate(*(field[which] for field in at))


def _put(at: Iterate, which: Tensor, new: Iterate) -> Iterate:
    return Iterate(*(field.index_copy(0, which, part) for field, part in zip(at, new, strict=True)))


def stopped(problem: DualSVM, steps: int) -> Iterate:
    """The point after so many steps, as a differentiable function of the Gram matrices: every step is kept.

    Where the way is cut short, the derivative of the solution is not that of the point that was reached.

    Args:
        problem: the programmes; gradients flow to its Gram matrices.
        steps: how many; none gives the start.
    """
    state = start(problem)
    for _ in range(steps):
        state = _move(problem, state)
    return state
