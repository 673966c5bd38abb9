"""Support vector machines on Gram matrices, for learners: solved to the end, or stopped on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.solvers.crammer_singer import through_gram
from innerloop.solvers.interior_point import DualSVM, Iterate, interior_point, stopped
from innerloop.solvers.problems import one_hot
from innerloop.solvers.products import gram_matrix

AIM = {torch.float32: 1e-9, torch.float64: 1e-12}
"""Relative gap at which the steps end; implicit gradients need more digits of a solution than its use."""
FLOOR = {torch.float32: 1e-7, torch.float64: 1e-10}
"""Least weights in the derivative: Gram matrices of float32 features have no more digits."""


class DualResult(NamedTuple):
    """Coefficients ``(B, k, n)`` with ``W = AX``, and what they prove.

    Attributes:
        A: the coefficients.
        objective: value reached.
        gap: proven distance above the minimum.
        iterations: steps taken.
    """

    A: Tensor
    objective: Tensor
    gap: Tensor
    iterations: Tensor


def svm_coefficients(
    gram: Tensor, hot: Tensor, C: float, rank: int, steps: int | None = None, max_steps: int = 100
) -> DualResult:
    r"""Dual coefficients of Crammer and Singer's machine, differentiable in the Gram matrices.

    Solved to the end, they are differentiated implicitly. Stopped after ``steps``, they are differentiated
    through these steps: the implicit derivative belongs to the solution, and three steps from the start it
    is off by a third of its length and more.

    Args:
        gram: ``(B, n, n)``; the work is done in float64.
        hot: one-hot labels ``(B, k, n)``; every class needs a sample.
        C: inverse penalty.
        rank: number of features.
        steps: stop after so many interior-point steps; to the end if omitted.
        max_steps: at most so many to the end.

    >>> gram = torch.tensor([[[1.0, -1.0], [-1.0, 1.0]]])  # samples −1 and 1
    >>> svm_coefficients(gram, torch.eye(2)[None], C=10.0, rank=1).A @ torch.tensor([[-1.0], [1.0]]).double()
    tensor([[[-0.5000],
             [ 0.5000]]], dtype=torch.float64)
    """
    problem = DualSVM(gram.double(), hot.double(), C, rank)
    if steps is not None:
        reached = stopped(problem, steps)
        return _result(reached, torch.full((len(gram),), steps, device=gram.device))
    with torch.no_grad():
        fixed = problem._replace(gram=problem.gram.detach())
        best, taken = interior_point(fixed, AIM[gram.dtype], max_steps)
    if gram.requires_grad and torch.is_grad_enabled():
        weight = best.multiplier / best.slack
        best = best._replace(A=through_gram(problem.gram, best.A, weight, rank, FLOOR[gram.dtype]))
    return _result(best, taken)


def _result(at: Iterate, steps: Tensor) -> DualResult:
    return DualResult(at.A, at.objective.detach(), at.gap.detach(), steps)


def svm_heads(
    features: Sequence[Tensor], labels: Sequence[Tensor], ways: int, C: float, steps: int | None = None
) -> tuple[list[Tensor], DualResult]:
    """Weights ``(k, d)`` of one machine per task, without intercept; differentiable in the features.

    All programmes are solved in one batch. Products of features are taken task by task: they gain nothing
    from batching, and what they give stays small enough for its memory to be used again.

    Args:
        features: ``(n, d)`` for each task, with the same ``n``.
        labels: ``(n,)`` for each task; every class has a sample.
        ways: number of classes.
        C: inverse penalty.
        steps: see :func:`svm_coefficients`.

    >>> x, y = torch.tensor([[-1.0], [1.0]]), torch.tensor([0, 1])
    >>> [w.flatten() for w in svm_heads([x, 2 * x], [y, y], ways=2, C=10.0)[0]]
    [tensor([-0.5000,  0.5000]), tensor([-0.2500,  0.2500])]
    """
    gram = torch.stack([gram_matrix(z) for z in features])
    hot = one_hot(torch.stack(list(labels)), ways, gram)
    dual = svm_coefficients(gram, hot, C, features[0].shape[-1], steps)
    return [A.to(z.dtype) @ z for A, z in zip(dual.A, features, strict=True)], dual
