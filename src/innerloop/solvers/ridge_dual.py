r"""Ridge regression in sample space as one operation, for learners.

.. math:: (XX^\top + \lambda I)\,A = Y, \qquad W = A^\top X

Its derivative reuses the factor, :math:`U = (XX^\top + \lambda I)^{-1}X\bar W^\top`, and takes no product
that is larger than those of the weights (:func:`innerloop.solvers.products.pulled_back`): autograd goes
through the Gram matrix, and takes one as large as the Gram matrix itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from innerloop.solvers.products import LARGE, pulled_back, symmetric_product

Plain = Callable[[Tensor, Tensor, Tensor, bool], tuple[Tensor, Tensor]]
"""The same of differentiable operations, for second derivatives."""


def ridge_dual(x: Tensor, y: Tensor, penalty: Tensor, constant: bool, plain: Plain) -> tuple[Tensor, Tensor]:
    """Weights ``(B, k, d)`` and intercepts ``(B, k)``; what cannot be solved is nan."""
    weights, bias = _RidgeDual.apply(x, y, penalty, constant, plain)
    return weights, bias


class _RidgeDual(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, penalty: Tensor, constant: bool, plain: Plain
    ) -> tuple[Tensor, Tensor]:
        """Weights and intercepts, solved in sample space a part of the problems at a time."""
        parts = zip(x.split(_size(x)), y.split(_size(x)), strict=True)
        solutions = [_solved(some, targets, penalty, constant) for some, targets in parts]
        weights, A, factor = (_joined(field) for field in zip(*solutions, strict=True))
        ctx.save_for_backward(x, y, penalty, weights, A, factor)
        ctx.constant, ctx.plain = constant, plain
        return weights, A.sum(-1).to(x.dtype) * float(constant)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients in features, targets and penalty, from the factors that the forward pass has kept."""
        x, y, penalty, weights, A, factor = ctx.saved_tensors
        if torch.is_grad_enabled():  # a derivative of this one is wanted
            return *_graph(ctx, x, y, penalty, grads), None, None
        shift = (grads[1] * float(ctx.constant))[..., None]
        slope = torch.empty_like(x)
        parts = (t.split(_size(x)) for t in (x, A, factor, weights, grads[0], shift, slope))
        U = _joined([_pulled(*part) for part in zip(*parts, strict=True)])
        return slope, U.mT.to(y.dtype), -(U * A).sum().to(penalty.dtype), None, None


def _size(x: Tensor) -> int:
    """How many tasks at a time: one where features fill the cache, so that they are read from there."""
    return 1 if x[0].numel() >= LARGE else max(len(x), 1)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _solved(x: Tensor, y: Tensor, penalty: Tensor, constant: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, coefficients ``(B, k, n)`` and the factor of their system, both in float64."""
    system = symmetric_product(x).double()
    if constant:
        system += 1.0
    system.diagonal(dim1=-2, dim2=-1).add_(penalty.double())
    factor, failed = torch.linalg.cholesky_ex(system)
    A = torch.cholesky_solve(y.double(), factor).mT
    if bool(failed.any()):
        A = torch.where((failed == 0)[:, None, None], A, torch.nan)
    return A.to(x.dtype) @ x, A, factor


def _pulled(
    x: Tensor, A: Tensor, factor: Tensor, weights: Tensor, grad: Tensor, shift: Tensor, out: Tensor
) -> Tensor:
    """``U`` (B, k, n); the gradient in the features is written to ``out``."""
    right = (x @ grad.mT + shift.mT).double()
    U = torch.cholesky_solve(right, factor).mT
    pulled_back(x, A.to(x.dtype), U.to(x.dtype), weights, grad, out)
    return U


def _graph(ctx: Any, x: Tensor, y: Tensor, penalty: Tensor, grads: tuple[Tensor, ...]) -> list[Tensor | None]:
    """Gradients that can be differentiated again, by the plain way."""
    inputs = (x, y, penalty)
    wanted = [t for t, needed in zip(inputs, ctx.needs_input_grad, strict=False) if needed]
    gradients = iter(
        torch.autograd.grad(
            ctx.plain(x, y, penalty, ctx.constant), wanted, grads, create_graph=True, allow_unused=True
        )
    )
    return [next(gradients) if needed else None for needed in ctx.needs_input_grad[:3]]
