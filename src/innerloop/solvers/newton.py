r"""Newton's method on softmax problems, for those that conjugate gradients leave unfinished.

The Newton system has ``n·k`` unknowns, but its Hessian is diagonal plus low rank in the classes: with
:math:`D_c = C\,\mathrm{diag}(p_c)` and :math:`E_c = (K + D_c^{-1})^{-1}` it is solved by ``k + 1`` inverses
of ``n × n`` matrices (Rasmussen and Williams 2006, algorithm 3.3; here with unpenalised intercepts as well).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.solvers.inverse import spd_inverse, times
from innerloop.solvers.softmax_dual import SoftmaxProblem, SoftmaxSolution, certify, dot

PATIENCE = 3  # steps without a smaller gap


class Curvature(NamedTuple):
    """What a linear solve with the Hessian at one point needs: see :func:`curvature`."""

    E: Tensor  # (B, k, n, n)
    root: Tensor  # (B, k, n): √D
    coupling: Tensor  # (B, n, n): inverse of the system that ties the classes together
    mass: Tensor | None  # (B, k, n): E_c 1, when there is an intercept


def curvature(problem: SoftmaxProblem, P: Tensor) -> Curvature:
    """Factorises the Hessian at probabilities ``P``."""
    root = (problem.C * P).clamp_min(torch.finfo(P.dtype).tiny).sqrt()
    n = root.shape[-1]
    eye = torch.eye(n, dtype=P.dtype, device=P.device)
    inner = spd_inverse(eye + root[..., :, None] * problem.gram[:, None] * root[..., None, :])
    E = root[..., :, None] * inner * root[..., None, :]
    tied = E.sum(1)
    mass = None
    if problem.intercept:
        mass = E.sum(-1)
        tied = tied - (mass / mass.sum(-1, keepdim=True)).mT @ mass
        # shifting every score of every class changes nothing: close that direction
        tied = tied + tied.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None] / n
    return Curvature(E, root, spd_inverse(tied), mass)


def solve_hessian(hessian: Curvature, R: Tensor) -> tuple[Tensor, Tensor]:
    """``(dA, db)`` with ``dA + C·H(K dA + db) = R``; rows of ``R`` (over classes) must sum to zero."""
    r = times(hessian.E, R / hessian.root.square())
    right = -r.sum(1)
    if hessian.mass is None:
        q = times(hessian.coupling, right)
        return r + times(hessian.E, q[:, None].expand_as(R)), R.new_zeros(*R.shape[:2], 1)
    total, lack = hessian.mass.sum(-1, keepdim=True), r.sum(-1, keepdim=True)
    right = right + (hessian.mass * (lack / total)).sum(1)
    q = times(hessian.coupling, right)[:, None]
    shift = ((hessian.mass * q).sum(-1, keepdim=True) + lack) / total
    return r + times(hessian.E, q - shift), shift


def newton_step(problem: SoftmaxProblem, A: Tensor, F: Tensor) -> tuple[Tensor, Tensor]:
    """One damped step: Newton's direction, halved until the objective falls by a fair share."""
    log_p = torch.log_softmax(F, 1)
    P = log_p.exp()
    R = problem.C * (problem.hot - P) - A
    dA, shift = solve_hessian(curvature(problem, P), R)
    dF = dA @ problem.gram + shift
    here = _objective(problem, A, F)
    promised = dot(R, dF)
    length = torch.ones_like(promised)
    for _ in range(30):
        there = _objective(problem, A + length * dA, F + length * dF)
        short = there > here - 1e-4 * length * promised
        if not bool(short.any()):
            break
        length = torch.where(short, length / 2, length)
    A = A + length * dA
    A = A - A.mean(1, keepdim=True)  # sums that are zero by theory drift by rounding
    return (A - A.mean(-1, keepdim=True) if problem.intercept else A), F + length * dF


def _objective(problem: SoftmaxProblem, A: Tensor, F: Tensor) -> Tensor:
    # ⟨A, F⟩ = ⟨A, KA⟩: intercepts drop out because the columns of A sum to zero
    return 0.5 * dot(A, F) - problem.total(problem.hot * torch.log_softmax(F, 1))[:, None, None]


def solve(problem: SoftmaxProblem, start: SoftmaxSolution, tol: float, max_steps: int) -> SoftmaxSolution:
    """Newton steps on problems of ``start`` that are not converged, until they are or rounding stops them."""
    proof = certify(problem, start.A, start.F)
    done = proof.gap <= tol * proof.objective
    out = SoftmaxSolution(
        start.A.clone(), proof.F, proof.objective, proof.gap, done, start.iterations.clone()
    )
    idle = torch.zeros_like(out.iterations)  # steps in a row that brought nothing
    for _ in range(max_steps):
        left = (~out.converged & (idle < PATIENCE)).nonzero().flatten()
        if not len(left):
            break
        part = problem.at(left)
        A, F = newton_step(part, out.A[left], out.F[left])
        proof = certify(part, A, F)
        near = proof.gap < 1e-4 * proof.objective  # far away the gap may rise while the objective falls
        idle[left] = torch.where(near & (proof.gap > 0.9 * out.gap[left]), idle[left] + 1, 0)
        broken = ~torch.isfinite(proof.objective + proof.gap)
        idle[left[broken]] = PATIENCE
        done = proof.gap <= tol * proof.objective
        moved = SoftmaxSolution(A, proof.F, proof.objective, proof.gap, done, out.iterations[left] + 1)
        out.write(left[~broken], SoftmaxSolution(*(field[~broken] for field in moved)))
    return out
