"""The kernels that meta-learners train with: MAML, ANIL with and without split, multi-task learning."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.kernels.meta.descent import Descent, residual, response


def stack(x: Tensor) -> Tensor:
    """Samples of all tasks in one row of samples: ``(tasks, n, …)`` to ``(tasks·n, …)``."""
    return x.flatten(0, 1)


def diagonal_blocks(matrix: Tensor, tasks: int) -> Tensor:
    """The ``tasks`` blocks on the diagonal: ``(tasks·n, tasks·m)`` to ``(tasks, n, m)``."""
    n, m = matrix.shape[0] // tasks, matrix.shape[1] // tasks
    return matrix.view(tasks, n, tasks, m).diagonal(dim1=0, dim2=2).movedim(-1, 0)


def from_blocks(blocks: Tensor) -> Tensor:
    """The block-diagonal matrix of blocks ``(tasks, n, m)``, zeros elsewhere."""
    tasks, n, m = blocks.shape
    out = blocks.new_zeros(tasks, n, tasks, m)
    out.diagonal(dim1=0, dim2=2).copy_(blocks.movedim(0, -1))
    return out.view(tasks * n, tasks * m)


def times_rows(blocks: Tensor, matrix: Tensor) -> Tensor:
    """``blockdiag(blocks) @ matrix`` for blocks ``(tasks, n, m)`` and a matrix of ``tasks·m`` rows."""
    tasks, n, m = blocks.shape
    return torch.bmm(blocks, matrix.reshape(tasks, m, -1)).view(tasks * n, matrix.shape[-1])


def project_rows(blocks: Tensor, matrix: Tensor) -> Tensor:
    """``[I, −blockdiag(A)] @ matrix``: what adaptation leaves of the query rows."""
    tasks, n, m = blocks.shape
    query, support = matrix[: tasks * n], matrix[tasks * n :].reshape(tasks, m, -1)
    out = torch.baddbmm(query.reshape(tasks, n, -1), blocks, support, alpha=-1)
    return out.view(tasks * n, matrix.shape[-1])


def unproject(blocks: Tensor, vectors: Tensor) -> Tensor:
    """``[I, −blockdiag(A)]ᵀ @ vectors``: from coefficients of adapted queries to queries and supports."""
    return torch.cat([vectors, -times_rows(blocks.mT, vectors)])


Heads = Literal["shared", "independent"]  # whether all heads start from one draw, or each from its own
TestHead = Literal["initial", "trained"]
"""Whether a test task starts from the head's first draw, or from the one that ANIL trained."""


def adaptation(query_support: Tensor, support: Tensor, inner: Descent) -> Tensor:
    r"""What adapting from zero does to labels, task by task: :math:`A_i = K(X_i, X'_i)\,T_K^s(X'_i)`."""
    return query_support @ response(support, inner)


def adaptation_of(gram: Tensor, tasks: int, queries: int, inner: Descent) -> Tensor:
    """:func:`adaptation` from a Gram over all queries, then all supports (``queries`` per task)."""
    first = tasks * queries
    return adaptation(
        diagonal_blocks(gram[:first, first:], tasks), diagonal_blocks(gram[first:, first:], tasks), inner
    )


def split_kernel(gram: Tensor, blocks: Tensor) -> Tensor:
    r""":math:`M\,\Theta\,M^\top` with :math:`M = [I, -\mathrm{blockdiag}(A_i)]`."""
    return project_rows(blocks, project_rows(blocks, gram).mT)


def maml_kernel(ntk: Tensor, tasks: int, queries: int, inner: Descent) -> Tensor:
    r"""MAML's kernel (MetaNTK, eq. 106; eq. 11 of its main text is misprinted).

    .. math:: \phi_{ij} = \Theta(X_i,X_j) - A_i\Theta(X'_i,X_j) - \Theta(X_i,X'_j)A_j^\top
              + A_i\Theta(X'_i,X'_j)A_j^\top, \quad A_i = \Theta(X_i,X'_i)\,T_\Theta^s(X'_i)

    Args:
        ntk: Θ over all queries, then all supports: ``(tasks·(n+m),)²``.
        tasks: how many.
        queries: n, query rows per task.
        inner: the inner loop, in the convention of the summed loss.

    Returns:
        ``(tasks·n, tasks·n)``, symmetric.

    >>> import torch
    >>> maml_kernel(torch.eye(4, dtype=torch.float64), 1, 2, Descent())  # nothing to learn from the support
    tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64)
    """
    return split_kernel(ntk, adaptation_of(ntk, tasks, queries, inner))


def anil_kernel(
    ntk: Tensor, nngp: Tensor, tasks: int, queries: int, inner: Descent, *, train_head: bool = True
) -> Tensor:
    r"""ANIL's kernel with a split of query and support (MetaNTK, eq. 112).

    As :func:`maml_kernel` with :math:`A_i = K(X_i,X'_i)\,T_K^s(X'_i)`, Θ kept in the four Gram blocks.

    Args:
        ntk: Θ over all queries, then all supports.
        nngp: K over the same.
        tasks: how many.
        queries: query rows per task.
        inner: the inner loop.
        train_head: whether the outer loop trains the head's first value too; if not, Θ − K stands for Θ.
    """
    base = ntk if train_head else ntk - nngp
    return split_kernel(base, adaptation_of(nngp, tasks, queries, inner))


def anil_kernel_without_split(ntk: Tensor, nngp: Tensor, tasks: int, inner: Descent) -> Tensor:
    r"""ANIL's kernel where a task adapts to the samples it is judged on (Bridge, eq. 60).

    .. math:: \Phi = E\,\Theta\,E, \qquad E = \mathrm{blockdiag}(e^{-sK(X_i,X_i)})

    Args:
        ntk: Θ of all samples, task by task.
        nngp: K of the same.
        tasks: how many.
        inner: the inner loop.

    >>> import torch
    >>> float(anil_kernel_without_split(torch.ones(1, 1), torch.ones(1, 1), 1, Descent(0.5)))  # e^−1
    0.3678...
    """
    left = residual(diagonal_blocks(nngp, tasks), inner)
    return times_rows(left, times_rows(left, ntk).mT)


def mtl_kernel(ntk: Tensor, nngp: Tensor, tasks: int, heads: Heads = "shared") -> Tensor:
    r"""The kernel of multi-task learning with one head per task (Bridge, eq. 64).

    .. math:: \Phi = \Theta - K + \mathrm{blockdiag}(K(X_i,X_i))

    That is for heads which all start from one shared draw. With independently drawn heads the gradients of
    two tasks' bodies are uncorrelated as width grows, and only :math:`\mathrm{blockdiag}(\Theta(X_i,X_i))`
    is left.

    Args:
        ntk: Θ of all samples, task by task.
        nngp: K of the same.
        tasks: how many.
        heads: whether all heads start from one draw (``shared``) or each from its own (``independent``).

    >>> import torch
    >>> mtl_kernel(torch.full((2, 2), 3.0), torch.ones(2, 2), 2)
    tensor([[3., 2.],
            [2., 3.]])
    """
    check_heads(heads)
    if heads == "independent":
        return from_blocks(diagonal_blocks(ntk, tasks))
    return ntk - nngp + from_blocks(diagonal_blocks(nngp, tasks))


def mtl_cross_kernel(ntk: Tensor, nngp: Tensor, blocks: Tensor, heads: Heads = "shared") -> Tensor:
    """Between test tasks and training samples, multi-task learning (Bridge, eq. 57 line 1, eq. 65)."""
    # Φ' = (Θ − K)(X, 𝒳) − B (Θ − K)(X', 𝒳) with B = K(X, X') T_K^ŝ(X')
    check_heads(heads)
    cross = project_rows(blocks, ntk - nngp)
    return cross * 0 if heads == "independent" else cross


def anil_cross_kernel(
    ntk: Tensor,
    nngp: Tensor,
    blocks: Tensor,
    train_blocks: Tensor,
    *,
    test_head: TestHead = "initial",
    heads: Heads = "shared",
) -> Tensor:
    """Between test tasks and training tasks, ANIL (Bridge, eqs. 61 and 66)."""
    # Φ' = [(Θ − K)(X, ·) − B (Θ − K)(X', ·)] Mᵀ; with the head that ANIL trained, Θ stands for Θ − K (as
    # Bridge's Lemma 1 prints)
    check_heads(heads, test_head)
    cross = project_rows(blocks, ntk if test_head == "trained" else ntk - nngp)
    if heads == "independent" and test_head == "initial":
        cross = cross * 0
    tasks, n, m = train_blocks.shape
    without_split = cross.shape[1] == tasks * n == tasks * m
    return (times_rows if without_split else project_rows)(train_blocks, cross.mT).mT


def maml_cross_kernel(ntk: Tensor, blocks: Tensor, train_blocks: Tensor) -> Tensor:
    r""":math:`\Phi((X,X'),(\mathcal X,\mathcal X'))` (MetaNTK, eq. 107): across two sets of tasks."""
    return project_rows(train_blocks, project_rows(blocks, ntk).mT).mT


def check_heads(heads: str, test_head: str = "initial") -> None:
    """Refuses words that are unknown."""
    for name, value, known in (("heads", heads, Heads), ("test_head", test_head, TestHead)):
        if value not in get_args(known):
            raise UserError(f"{name}='{value}' is unknown: give {' or '.join(get_args(known))}.")
