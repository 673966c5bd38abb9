"""Products of features with themselves."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from innerloop.core.autodiff import is_plain


def gram_matrix(x: Tensor) -> Tensor:
    """``x xᵀ`` of ``(…, n, d)``.

    Its derivative in ``x`` is one product of that size; the two that autograd would take are kept for
    ``torch.func`` transforms only.

    >>> gram_matrix(torch.tensor([[1.0], [2.0]]))
    tensor([[1., 2.],
            [2., 4.]])
    """
    if not (is_plain() and x.requires_grad):
        return x @ x.mT
    product: Tensor = _Gram.apply(x)
    return product


class _Gram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x @ x.mT

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,), (grad,) = ctx.saved_tensors, grads
        return (grad + grad.mT) @ x
