"""Matrices over the samples of many tasks, and block-diagonal products with them, without loops.

Rows are stacked task by task. Where tasks are split, the queries of all tasks come first, then all supports.
"""

from __future__ import annotations

import torch
from torch import Tensor


def stack(x: Tensor) -> Tensor:
    """Samples of all tasks in one row of samples: ``(tasks, n, …)`` to ``(tasks·n, …)``.

    >>> stack(torch.zeros(3, 2, 5)).shape
    torch.Size([6, 5])
    """
    return x.flatten(0, 1)


def diagonal_blocks(matrix: Tensor, tasks: int) -> Tensor:
    """The ``tasks`` blocks on the diagonal: ``(tasks·n, tasks·m)`` to ``(tasks, n, m)``.

    >>> diagonal_blocks(torch.arange(16.0).view(4, 4), 2)[1]
    tensor([[10., 11.],
            [14., 15.]])
    """
    n, m = matrix.shape[0] // tasks, matrix.shape[1] // tasks
    return matrix.view(tasks, n, tasks, m).diagonal(dim1=0, dim2=2).movedim(-1, 0)


def from_blocks(blocks: Tensor) -> Tensor:
    """The block-diagonal matrix of blocks ``(tasks, n, m)``, zeros elsewhere.

    >>> from_blocks(torch.ones(2, 1, 1))
    tensor([[1., 0.],
            [0., 1.]])
    """
    tasks, n, m = blocks.shape
    out = blocks.new_zeros(tasks, n, tasks, m)
    out.diagonal(dim1=0, dim2=2).copy_(blocks.movedim(0, -1))
    return out.view(tasks * n, tasks * m)


def times_rows(blocks: Tensor, matrix: Tensor) -> Tensor:
    """``blockdiag(blocks) @ matrix`` for blocks ``(tasks, n, m)`` and a matrix of ``tasks·m`` rows.

    >>> times_rows(torch.tensor([[[2.0]], [[3.0]]]), torch.ones(2, 2))
    tensor([[2., 2.],
            [3., 3.]])
    """
    tasks, n, m = blocks.shape
    return torch.bmm(blocks, matrix.reshape(tasks, m, -1)).view(tasks * n, matrix.shape[-1])


def project_rows(blocks: Tensor, matrix: Tensor) -> Tensor:
    r"""``[I, −blockdiag(A)] @ matrix``: what adaptation leaves of the query rows.

    >>> project_rows(torch.tensor([[[0.5]]]), torch.tensor([[3.0], [2.0]]))  # 3 − ½·2
    tensor([[2.]])
    """
    tasks, n, m = blocks.shape
    query, support = matrix[: tasks * n], matrix[tasks * n :].reshape(tasks, m, -1)
    out = torch.baddbmm(query.reshape(tasks, n, -1), blocks, support, alpha=-1)
    return out.view(tasks * n, matrix.shape[-1])


def unproject(blocks: Tensor, vectors: Tensor) -> Tensor:
    """``[I, −blockdiag(A)]ᵀ @ vectors``: from coefficients of adapted queries to queries and supports."""
    return torch.cat([vectors, -times_rows(blocks.mT, vectors)])
