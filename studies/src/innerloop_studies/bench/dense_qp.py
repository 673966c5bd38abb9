r"""A general quadratic programme, one at a time, by a dense interior-point method.

.. math:: \min_x\;\tfrac12 x^\top Qx + p^\top x \quad\text{s.t.}\quad Gx \le h,\; Ax = b

Mehrotra's (1992) predictor-corrector steps on the reduced system of all unknowns, factorised by LU; gradients
from the same system at the solution (Amos & Kolter 2017). It knows nothing of what the programme comes from:
that is what ``bench qp`` sets our solver beside where ``qpth`` is not installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

KEEP, STEPS, ENOUGH = 0.995, 50, 1e-12
COMPLEMENTARY = 1e-16  # where multipliers are small, it takes this much to tell which constraints bind
STIFF = 1e8

Solve = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class DenseQP(torch.autograd.Function):
    """The solution as a function of ``Q`` and ``p``; the constraints are constants."""

    @staticmethod
    def forward(ctx: Any, Q: Tensor, p: Tensor, G: Tensor, h: Tensor, A: Tensor, b: Tensor) -> Tensor:
        """Steps until residuals and complementarity are small."""
        x, slack, multiplier = interior_point(Q, p, G, h, A, b)
        ctx.save_for_backward(x, slack, multiplier, Q, G, A)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """One more solve: ``dx = −J⁻¹ dr`` with the symmetric ``J`` of the last step."""
        x, slack, multiplier, Q, G, A = ctx.saved_tensors
        # weights of binding inequalities grow without bound, and would take the digits of all others
        weight = (multiplier / slack).clamp_max(STIFF * float(Q.diagonal().mean()))
        dx, _ = _factorised(Q, G, A, weight)(-grads[0], A.new_zeros(len(A)))
        return 0.5 * (torch.outer(dx, x) + torch.outer(x, dx)), dx, None, None, None, None


def _factorised(Q: Tensor, G: Tensor, A: Tensor, weight: Tensor) -> Solve:
    """Solves ``(Q + GᵀΘG)dx + Aᵀdy = r`` with ``A dx = s``."""
    system = torch.cat(
        [torch.cat([Q + (G.mT * weight) @ G, A.mT], 1), torch.cat([A, A.new_zeros(len(A), len(A))], 1)]
    )
    factor = torch.linalg.lu_factor(system)

    def solve(r: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """The solution for one right-hand side."""
        both = torch.linalg.lu_solve(*factor, torch.cat([r, s])[:, None])[:, 0]
        return both[: len(Q)], both[len(Q) :]

    return solve


def _room(value: Tensor, change: Tensor) -> float:
    falling = change < 0
    return min(1.0, KEEP * float((-value / change)[falling].min())) if bool(falling.any()) else 1.0


def interior_point(
    Q: Tensor, p: Tensor, G: Tensor, h: Tensor, A: Tensor, b: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Solution, slacks and multipliers of the inequalities.

    >>> one = torch.ones(1, 1, dtype=torch.float64)  # ½x² − 2x with x ≤ 1
    >>> none = torch.zeros(0, 1, dtype=torch.float64)
    >>> x, _, multiplier = interior_point(one, -2 * one[0], one, one[0], none, none[:, 0])
    >>> round(float(x), 8), round(float(multiplier), 8)
    (1.0, 1.0)
    """
    x, y = torch.zeros_like(p), torch.zeros_like(b)
    slack, multiplier = torch.ones_like(h), torch.ones_like(h)
    for _ in range(STEPS):
        dual, primal, tie = Q @ x + p + G.mT @ multiplier + A.mT @ y, G @ x + slack - h, A @ x - b
        mu = slack @ multiplier / len(h)
        off = max(float(t.abs().max()) if len(t) else 0.0 for t in (dual, primal, tie))
        if off < ENOUGH and float(mu) < COMPLEMENTARY:
            break
        solve = _factorised(Q, G, A, multiplier / slack)

        def move(target: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            """The change of all variables for a target of complementarity."""
            inner = (target + multiplier * primal) / slack  # noqa: B023  (used within the step only)
            dx, dy = solve(-dual - G.mT @ inner, -tie)  # noqa: B023
            ds = -primal - G @ dx  # noqa: B023
            return dx, dy, ds, (target - multiplier * ds) / slack  # noqa: B023

        _, _, ds, dm = move(-slack * multiplier)
        length = min(_room(slack, ds), _room(multiplier, dm))
        ahead = (slack + length * ds) @ (multiplier + length * dm) / len(h)
        dx, dy, ds, dm = move((ahead / mu) ** 3 * mu - slack * multiplier - ds * dm)
        length = min(_room(slack, ds), _room(multiplier, dm))
        x, y = x + length * dx, y + length * dy
        slack, multiplier = slack + length * ds, multiplier + length * dm
    return x, slack, multiplier
