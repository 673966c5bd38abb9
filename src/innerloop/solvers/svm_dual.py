"""Support vector machines on Gram matrices, for learners: solved to the end, or stopped on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from innerloop.core.autodiff import is_plain
from innerloop.solvers.dual import derivative, solve_dual
from innerloop.solvers.implicit import implicit
from innerloop.solvers.interior_point import DualSVM, Iterate, stopped
from innerloop.solvers.problems import one_hot
from innerloop.solvers.products import gram_matrix, pulled_back
from innerloop.solvers.tied import Solve

AIM = {torch.float32: 1e-9, torch.float64: 1e-12}
"""Relative gap at which the steps end; implicit gradients need more digits of a solution than its use."""
FLOOR = {torch.float32: 1e-7, torch.float64: 1e-10}
"""Least weights in the derivative: Gram matrices of float32 features have no more digits."""


class DualResult(NamedTuple):
    """Coefficients ``(B, k, n)`` with ``W = AX``, and what they prove."""

    A: Tensor
    objective: Tensor
    gap: Tensor
    iterations: Tensor


def svm_coefficients(
    gram: Tensor, hot: Tensor, C: float, rank: int, steps: int | None = None, max_steps: int = 100
) -> DualResult:
    """Dual coefficients of Crammer and Singer's machine, differentiable in the Gram matrices."""
    # solved to the end by implicit differentiation, stopped after ``steps`` through these: three steps from
    # the start the implicit derivative, which belongs to the solution, is off by a third of its length and
    # more
    problem = DualSVM(_symmetric(gram), hot.double(), C, rank)
    if steps is not None:
        reached = stopped(problem, steps)
        return _result(reached, torch.full((len(gram),), steps, device=gram.device))
    with torch.no_grad():
        fixed = problem._replace(gram=problem.gram.detach())
        best, taken, face = solve_dual(fixed, AIM[gram.dtype], max_steps)
    if gram.requires_grad and torch.is_grad_enabled():
        solve = derivative(fixed.gram, best, face, rank, FLOOR[gram.dtype])
        best = best._replace(A=implicit(best.A, lambda at: at @ problem.gram, solve))
    return _result(best, taken)


def _symmetric(gram: Tensor) -> Tensor:
    """In float64; products of float32 features may differ from their transpose in the last digit."""
    wide = gram.double()
    return 0.5 * (wide + wide.mT)


def _result(at: Iterate, steps: Tensor) -> DualResult:
    return DualResult(at.A, at.objective.detach(), at.gap.detach(), steps)


def svm_heads(
    features: Sequence[Tensor], labels: Sequence[Tensor], ways: int, C: float, steps: int | None = None
) -> tuple[list[Tensor], DualResult]:
    """Weights ``(k, d)`` of one machine per task, without intercept; differentiable in the features."""
    # products of features are taken task by task: small enough for their memory to be used again
    hot = one_hot(torch.stack(list(labels)), ways, features[0])
    whole = torch.is_grad_enabled() and steps is None and is_plain()
    if whole and any(z.requires_grad for z in features):
        return _in_one_piece(features, hot, C)
    dual = svm_coefficients(_grams(features), hot, C, features[0].shape[-1], steps)
    return [A.to(z.dtype) @ z for A, z in zip(dual.A, features, strict=True)], dual


def _grams(features: Sequence[Tensor]) -> Tensor:
    """In float64 where there are more samples than features, and Gram matrices singular."""
    n, d = features[0].shape
    return torch.stack([gram_matrix(z if n <= d else z.double()) for z in features])


def _in_one_piece(features: Sequence[Tensor], hot: Tensor, C: float) -> tuple[list[Tensor], DualResult]:
    """The same as one operation, whose derivative takes no large product of features."""
    rank, dtype = features[0].shape[-1], features[0].dtype
    with torch.no_grad():
        gram = _symmetric(_grams(features))
        best, taken, face = solve_dual(DualSVM(gram, hot.double(), C, rank), AIM[dtype], 100)
        solve = derivative(gram, best, face, rank, FLOOR[dtype])
    weights = _Heads.apply(solve, best.A, *features)
    return list(weights), _result(best, taken)


class _Heads(torch.autograd.Function):
    """Weights ``Az`` of every task; coefficients follow the features as their conditions say."""

    @staticmethod
    def forward(ctx: Any, solve: Solve, A: Tensor, *features: Tensor) -> tuple[Tensor, ...]:
        """Weights from coefficients and features."""
        short = A.to(features[0].dtype)
        weights = tuple(a @ z for a, z in zip(short, features, strict=True))
        ctx.save_for_backward(short, *weights, *features)
        ctx.solve = solve
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients in the features, by implicit differentiation of the coefficients."""
        A, *rest = ctx.saved_tensors
        weights, features = rest[: len(A)], rest[len(A) :]
        right = torch.stack([g @ z.mT for g, z in zip(grads, features, strict=True)])
        adjoint = ctx.solve(right.double()).to(A.dtype)
        pieces = zip(features, A, adjoint, weights, grads, strict=True)
        return None, None, *(pulled_back(*piece) for piece in pieces)
