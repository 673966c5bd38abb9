"""Products of features with themselves, and their derivative where few coefficients stand behind it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from innerloop.core.autodiff import is_plain

LARGE = 200_000  # numbers in a matrix from which half of a symmetric product is worth two more calls
BLOCK = 32  # rows of a block: matrix products are quickest in multiples of 16


def gram_matrix(x: Tensor) -> Tensor:
    """``x xᵀ`` of ``(…, n, d)``; outside of ``torch.func`` with a derivative of one product, not two."""
    if not (is_plain() and x.requires_grad):
        return x @ x.mT
    product: Tensor = _Gram.apply(x)
    return product


class _Gram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """``x xᵀ``."""
        ctx.save_for_backward(x)
        return symmetric_product(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        """``(G + Gᵀ) x`` for the gradient ``G`` of the products."""
        (x,), (grad,) = ctx.saved_tensors, grads
        return (grad + grad.mT) @ x


def symmetric_product(x: Tensor) -> Tensor:
    """``x xᵀ`` as a constant: of wide matrices only one of the two triangles is computed."""
    n, d = x.shape[-2:]
    if n <= BLOCK or n * d < LARGE or x.device.type != "cpu":
        return x @ x.mT
    out = x.new_empty(*x.shape[:-1], n)
    for rows, product in zip(x.reshape(-1, n, d), out.view(-1, n, n), strict=True):
        for first in range(0, n, BLOCK):
            last = min(first + BLOCK, n)
            block = rows[first:last] @ rows[:last].mT
            product[first:last, :last] = block
            product[:first, first:last] = block[:, :first].mT
    return out


def pulled_back(
    x: Tensor, A: Tensor, adjoint: Tensor, weights: Tensor, grad: Tensor, out: Tensor | None = None
) -> Tensor:
    """The gradient in ``x`` of weights W = Ax whose coefficients were solved for on ``x xᵀ``."""
    # a solution with AK + … = const has dA = −J⁻¹(A dK); with the adjoint Λ = J⁻¹(W̄xᵀ) the gradient in K is
    # −AᵀΛ, of rank k, so no product of Aᵀ(W̄ − Λx) − ΛᵀW is larger than those of the weights themselves
    left = torch.cat([A, -adjoint], -2).mT
    return torch.matmul(left, torch.cat([grad - adjoint @ x, weights], -2), out=out)
