r"""Crammer and Singer's dual: guessing which coefficients stand at their bounds, else an interior point.

Once it is known which coefficients stand at the box (:math:`A_{ci} = CY_{ci}`), the others, the free ones,
solve a linear system: with :math:`K` the Gram matrix,

.. math:: (AK)_{ci} + \nu_i = Y_{ci} \;\;\text{for every free } (c, i), \qquad \textstyle\sum_c A_{ci} = 0 .

Free coefficients beyond their bounds are then bound, bound ones whose multiplier
:math:`Y - AK - \nu` is negative are freed, and the system is solved again: a semismooth Newton method
(Hintermüller, Ito and Kunisch 2002). It starts with all free, where one inverse serves all classes, and
mostly ends after one to seven systems; interior-point steps take two to five times as many. It may also go
round in circles, so what it gives counts only with the duality gap that proves it.

The system at the end is also that of the implicit derivative, so its inverses are kept.

Guessing is quick and exact where it ends. What it does not prove is left to the interior point, which always
ends, and whose answer is a better guess. With more samples than features nearly all guesses from afar are
wrong, so the interior point goes first.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

import innerloop.solvers.tied as tied
from innerloop.solvers.interior_point import (
    DualSVM,
    Iterate,
    better,
    interior_point,
    judged,
    part,
    picked,
    put,
)
from innerloop.solvers.inverse import spd_inverse, times

RIDGE = 1e-7  # on the matrices that are inverted, in units of the samples' spread; refinement takes it out
REFINED = (2, 5)  # how often; where single classes' matrices may be singular though the whole is not
ROUNDING = 1e-12  # by how much bounds and signs may be missed
POLISH = 6  # systems to settle the bounds after the interior point
LIMIT = 25  # systems; it has gone round in circles then


class Face(NamedTuple):
    """Systems of free coefficients, with what solves them."""

    gram: Tensor
    free: Tensor
    inverse: Tensor
    tied: Tensor
    refined: int

    def solve(self, right: Tensor, total: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
        """``x``, zero where bound, and ``ν``: ``xK + ν = right`` where free, and classes sum to ``total``."""
        x, nu = self._roughly(right, total)
        for _ in range(self.refined):
            more, shift = self._roughly(right - x @ self.gram - nu[:, None], total - x.sum(1))
            x, nu = x + more, nu + shift
        return x, nu

    def step(self, right: Tensor) -> Tensor:
        """``J⁻¹ right`` for implicit derivatives: linear, symmetric, made of constants."""
        return self.solve(right)[0]

    def _roughly(self, right: Tensor, total: Tensor | float) -> tuple[Tensor, Tensor]:
        plain = self._times(right)
        nu = ((plain.sum(1) - total)[:, None] @ self.tied).squeeze(1)
        return plain - self._times(nu[:, None].expand_as(right)), nu

    def _times(self, right: Tensor) -> Tensor:
        if self.inverse.shape[1] == 1:
            return right @ self.inverse[:, 0]
        return times(self.inverse, right)


class Faces(NamedTuple):
    """Points (gap infinite if not settled), whether they are, how many systems that took, the last ones."""

    best: Iterate
    settled: Tensor
    steps: Tensor
    face: Face


def by_faces(problem: DualSVM, limit: int = LIMIT, bound: Tensor | None = None) -> Faces:
    """Binds and frees coefficients until nothing changes."""
    bound = torch.zeros_like(problem.hot, dtype=torch.bool) if bound is None else bound
    face = face_of(problem, bound)
    A, multiplier = _point(problem, face)
    again = _rebound(problem, A, multiplier, bound)
    steps = torch.ones(len(bound), dtype=torch.int64, device=bound.device)
    for _ in range(limit - 1):
        left = (again != bound).flatten(1).any(1).nonzero().flatten()
        if not len(left):
            break
        bound = again
        some, guess = part(problem, left), again[left]
        new = face_of(some, guess)
        a, m = _point(some, new)
        face = joined(face, left, new)
        A, multiplier = A.index_copy(0, left, a), multiplier.index_copy(0, left, m)
        again = again.index_copy(0, left, _rebound(some, a, m, guess))
        steps[left] += 1
    settled = ~(again != bound).flatten(1).any(1)
    return Faces(_proven(problem, A, multiplier, settled), settled, steps, face)


def face_of(problem: DualSVM, bound: Tensor) -> Face:
    """The systems of programmes with these coefficients at their bounds."""
    gram = problem.gram
    ridge, refined = RIDGE * tied.spread(gram), REFINED[gram.shape[-1] > problem.rank]
    if not bool(bound.any()):  # one inverse for all classes
        system = gram.clone()
        system.diagonal(dim1=-2, dim2=-1).add_(ridge[:, None])
        k = bound.shape[1]
        return Face(gram, torch.ones_like(problem.hot), spd_inverse(system)[:, None], system / k, refined)
    free = (~bound).to(gram.dtype)
    pairs = free[..., :, None] * free[..., None, :]
    systems = gram[:, None] * pairs
    systems.diagonal(dim1=-2, dim2=-1).add_(torch.where(bound, 1.0, ridge[:, None, None]))
    inverse = spd_inverse(systems).mul_(pairs)
    return Face(gram, free, inverse, spd_inverse(inverse.sum(1)), refined)


def joined(face: Face, left: Tensor, new: Face) -> Face:
    """``face`` with ``new`` in some places."""
    if len(left) == len(face.gram):
        return new
    k = face.free.shape[1]
    inverse = face.inverse.expand(-1, k, -1, -1).index_copy(0, left, new.inverse.expand(-1, k, -1, -1))
    free, tied = face.free.index_copy(0, left, new.free), face.tied.index_copy(0, left, new.tied)
    return Face(face.gram, free, inverse, tied, new.refined)


def _point(problem: DualSVM, face: Face) -> tuple[Tensor, Tensor]:
    """Coefficients, and multipliers where they are bound."""
    at = problem.C * problem.hot * (1 - face.free)
    x, nu = face.solve(problem.hot - at @ problem.gram, -at.sum(1))
    A = at + x
    return A, (problem.hot - A @ problem.gram - nu[:, None]) * (1 - face.free)


def _rebound(problem: DualSVM, A: Tensor, multiplier: Tensor, bound: Tensor) -> Tensor:
    """Which coefficients to bind next; one of every sample stays free, or their sum could not be zero."""
    scale = tied.spread(problem.gram)[:, None, None]  # makes coefficients comparable with multipliers
    beyond = scale * (A - problem.C * (problem.hot + ROUNDING))
    score = torch.where(bound, multiplier + ROUNDING, beyond)
    new = score > 0
    least = torch.zeros_like(new).scatter_(1, score.argmin(1, keepdim=True), value=True)
    return new & ~(new.all(1, keepdim=True) & least)


def _proven(problem: DualSVM, A: Tensor, multiplier: Tensor, settled: Tensor) -> Iterate:
    """Points put inside the box, where rounding has left them out, with their gaps."""
    top = problem.C * problem.hot
    A = torch.minimum(A, top)
    roomy = (top - A).argmax(1, keepdim=True)
    A = A.scatter_add(1, roomy, -A.sum(1, keepdim=True))
    slack = (top - A).clamp_min(1e-14 * problem.C)
    point = judged(problem, A, slack, multiplier.clamp_min(0))
    return point._replace(gap=torch.where(settled & torch.isfinite(point.gap), point.gap, torch.inf))


class DualSolution(NamedTuple):
    """The best points, steps taken (linear systems solved), and what their derivative needs."""

    best: Iterate
    steps: Tensor
    face: Face | None


def solve_dual(problem: DualSVM, tol: float, max_steps: int) -> DualSolution:
    """Solves the programmes to a relative gap ``tol``, or as far as rounding allows."""
    if problem.gram.shape[-1] > problem.rank:
        return _polished(problem, tol, *interior_point(problem, tol, max_steps))
    first = by_faces(problem, min(LIMIT, max(1, max_steps // 2)))
    left = (~(first.best.gap <= tol * first.best.objective)).nonzero().flatten()
    if not len(left):
        return DualSolution(first.best, first.steps, first.face)
    some = part(problem, left)
    budget = max(1, max_steps - int(first.steps.max()))
    second = _polished(some, tol, *interior_point(some, tol, budget))
    steps = first.steps.index_add(0, left, second.steps)
    best = put(first.best, left, better(picked(first.best, left), second.best))
    face = None if second.face is None else joined(first.face, left, second.face)
    return DualSolution(best, steps, face)


def _polished(problem: DualSVM, tol: float, best: Iterate, steps: Tensor) -> DualSolution:
    """Settles the bounds that an interior point has come close to: exactly where it is, if that is proven."""
    scale = tied.spread(problem.gram)[:, None, None]
    faces: Faces = by_faces(problem, POLISH, bound=best.multiplier > best.slack * scale)
    known = torch.maximum(best.gap, tol * best.objective).clamp_min(ROUNDING * problem.C)
    exact = faces.settled & (faces.best.gap <= known)
    return DualSolution(better(best, faces.best), steps, faces.face if bool(exact.all()) else None)


def derivative(gram: Tensor, best: Iterate, face: Face | None, rank: int, floor: float) -> tied.Solve:
    """``r → J⁻¹r`` with ``J`` the derivative of stationarity, ``AK − Y + multiplier + ν = 0``, in ``A``."""
    # where bounds are not settled, the interior point's weights (multipliers over room) stand in for them
    if face is not None:
        return face.step
    weight = best.multiplier / best.slack
    if gram.shape[-1] <= rank:
        return tied.by_class(gram, weight, floor)
    return tied.dense(gram, weight, rank, floor)
