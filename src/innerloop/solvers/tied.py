r"""Linear systems whose classes are tied by one sum per sample, solved in two ways.

Given Gram matrices :math:`K` (n × n) and weights :math:`\Theta \ge 0` (k × n), find :math:`dA` (k × n) with

.. math:: dA_c K + \Theta_c\,dA_c + \nu = r_c \;\;\text{for every class } c, \qquad \sum_c dA_c = 0 .

:func:`by_class` inverts :math:`E_c = (K + \Theta_c)^{-1}` class by class and ties them through
:math:`(\sum_c E_c)\,\nu = \sum_c E_c r_c`: ``k + 1`` inverses of side ``n``, accurate unless both ``K`` is
singular (more samples than dimensions) and weights vanish. :func:`dense` eliminates the sums first, with
:math:`G_i = D_i - D_i\mathbf 1\mathbf 1^\top D_i/\mathbf 1^\top D_i\mathbf 1` and :math:`D = \Theta^{-1}` per
sample, and solves :math:`(I + L^\top G L)\,w = L^\top G r` with :math:`K = LL^\top`: a matrix of side
``rank·k`` without eigenvalues below one, for any ``K``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.solvers.inverse import spd_inverse, times

Solve = Callable[[Tensor], Tensor]


def factor(gram: Tensor, rank: int) -> Tensor:
    """``L`` (n × rank) with ``K = LLᵀ``, for positive semi-definite ``K`` of at most that rank."""
    values, vectors = torch.linalg.eigh(gram)
    return vectors[..., -rank:] * values[..., None, -rank:].clamp_min(0).sqrt()


def spread(gram: Tensor) -> Tensor:
    """Mean squared distance ``(B,)`` of a sample from the centre of all: the unit of weights."""
    whole = gram.diagonal(dim1=-2, dim2=-1).mean(-1)
    apart = whole - gram.mean((-1, -2))  # without what all samples share
    return torch.maximum(apart, 1e-6 * whole)


def _floored(gram: Tensor, weight: Tensor, floor: float) -> Tensor:
    return weight.clamp(min=(floor * spread(gram))[:, None, None])


def by_class(gram: Tensor, weight: Tensor, floor: float) -> Solve:
    """The solution as a function of ``r``, through which alone gradients flow; ``floor`` is in spreads."""
    weight = _floored(gram, weight, floor)
    k = weight.shape[1]
    systems = gram[:, None].expand(-1, k, -1, -1).clone()
    systems.diagonal(dim1=-2, dim2=-1).add_(weight)
    E = spd_inverse(systems)
    tied = spd_inverse(E.sum(1))
    room = weight.reciprocal()
    share = room / room.sum(1, keepdim=True)

    def solve(right: Tensor) -> Tensor:
        """The solution for the right-hand side ``(B, k, n)``."""
        plain = times(E, right)
        nu = tied @ plain.sum(1)[..., None]
        change = plain - (E @ nu[:, None]).squeeze(-1)
        # what rounding leaves of the sums is taken from the classes that have room
        return change - share * change.sum(1, keepdim=True)

    return solve


def dense(gram: Tensor, weight: Tensor, rank: int, floor: float) -> Solve:
    """The same for any ``K`` of at most the given rank."""
    root = factor(gram, rank)
    room = _floored(gram, weight, floor).reciprocal().mT  # (B, n, k)
    total = room.sum(-1, keepdim=True)
    k = room.shape[-1]
    others = torch.ones(k, k, dtype=room.dtype, device=room.device).fill_diagonal_(0)
    G = -room[..., :, None] * (room / total)[..., None, :]
    # the diagonal without the difference of equals that D − D²/ΣD would be
    G.diagonal(dim1=-2, dim2=-1).copy_(room * ((room / total) @ others))
    pairs = (root[..., :, None] * root[..., None, :]).flatten(2)  # (B, n, rank²)
    system = (
        (pairs.mT @ G.flatten(2)).view(-1, rank, rank, k, k).transpose(2, 3).reshape(-1, rank * k, rank * k)
    )
    eye = torch.eye(rank * k, dtype=room.dtype, device=room.device)
    lower, _ = torch.linalg.cholesky_ex(system + eye)

    def solve(right: Tensor) -> Tensor:
        """The solution for the right-hand side ``(B, k, n)``."""
        r = right.mT
        w = torch.cholesky_solve((root.mT @ times(G, r)).flatten(1)[..., None], lower)
        return times(G, r - root @ w.view(-1, rank, k)).mT

    return solve
