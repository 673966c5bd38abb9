"""Solutions of Crammer and Singer's dual by two methods, and their derivative in the Gram matrices.

Guessing the bounds (:mod:`innerloop.solvers.faces`) is quick and exact where it ends. What it does not prove
is left to the interior point, which always ends, and whose answer is a better guess. With more samples than
features nearly all guesses from afar are wrong, so the interior point goes first.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

import innerloop.solvers.tied as tied
from innerloop.solvers.faces import LIMIT, ROUNDING, Face, Faces, by_faces, joined
from innerloop.solvers.interior_point import DualSVM, Iterate, better, interior_point, part, picked, put

POLISH = 6  # systems to settle the bounds after the interior point


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
