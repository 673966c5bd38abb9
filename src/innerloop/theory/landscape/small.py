"""Many small environments: the batch is the innermost axis, so that every step is one vector operation.

Products and eliminations of thousands of 10×10 matrices one after the other spend their time on calls. Here
an array is ``(d, d, tasks, environments)`` and a matrix product is ``d`` multiply-adds over all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

Number = float | Tensor


def compare_small(
    s: Tensor, optima: Tensor, shares: Tensor, lr: Number, shots: Number, inner_shots: Number
) -> tuple[Tensor, Tensor]:
    """Solutions ``(B, 2, d)`` and task risks ``(B, 2, T)`` of NAL and MAML."""
    d = s.shape[-1]
    s = s.permute(2, 3, 1, 0).contiguous()  # (d, d, T, B)
    w = optima.permute(2, 1, 0).contiguous()  # (d, T, B)
    p = shares.T.contiguous()
    trace = s.square().sum((0, 1))
    square = product(s, s)
    per = 1 / inner_shots
    # p Q = p [(1 + (α²/n₂) tr S²) S − 2α S² + α²(1 + 1/n₂) S³], its diagonal factor put into the last product
    square.mul_(p * (lr**2 * (1 + per))).sub_(s * (p * (2 * lr)))
    square.diagonal(dim1=0, dim2=1).add_((p * (1 + lr**2 * per * trace))[..., None])
    q = product(s, square)
    system = s.new_empty(d, d + 1, 2, s.shape[-1])
    torch.sum(s * p, 2, out=system[:, :d, 0])
    torch.sum(q, 2, out=system[:, :d, 1])
    torch.sum(times(s, w) * p, 1, out=system[:, d, 0])
    torch.sum(times(q, w), 1, out=system[:, d, 1])
    minimisers = eliminate(system)  # (d, 2, B)
    v = minimisers[:, :, None] - w[:, None]
    u = times(s[:, :, None], v)
    per = 1 / shots
    linear = (1 + lr**2 * per * trace) * (v * u).sum(0)
    cubic = (u * times(s[:, :, None], u)).sum(0)
    risks = 0.5 * (linear - 2 * lr * u.square().sum(0) + lr**2 * (1 + per) * cubic)
    return minimisers.permute(2, 1, 0), risks.permute(2, 0, 1)


def product(a: Tensor, b: Tensor) -> Tensor:
    """``A B`` for matrices in the first two axes."""
    columns, rows = a.split(1, 1), b.split(1, 0)
    out = columns[0] * rows[0]
    for column, row in zip(columns[1:], rows[1:], strict=True):
        out.addcmul_(column, row)
    return out


def times(a: Tensor, x: Tensor) -> Tensor:
    """``A x`` for matrices in the first two axes and vectors in the first."""
    columns, entries = a.unbind(1), x.unbind(0)
    out = columns[0] * entries[0]
    for column, entry in zip(columns[1:], entries[1:], strict=True):
        out.addcmul_(column, entry)
    return out


def eliminate(system: Tensor) -> Tensor:
    """Solves augmented positive definite systems ``(n, n + 1, …)`` in place: they need no pivoting."""
    n = system.shape[0]
    for j in range(n):
        system[j, j + 1 :].mul_(system[j, j].reciprocal())
        system[j + 1 :, j + 1 :].addcmul_(system[j + 1 :, j : j + 1], system[j : j + 1, j + 1 :], value=-1)
    x = system[:, n].clone()
    for j in range(n - 2, -1, -1):
        x[j].sub_((system[j, j + 1 : n] * x[j + 1 :]).sum(0))
    return x
