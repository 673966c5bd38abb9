r"""Linear systems whose matrix is known by its products only, with unknowns that are parameters by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.trees import add_scaled, dot, tree_map
from innerloop.core.types import Params


class LinearSolution(NamedTuple):
    r"""What conjugate gradients found.

    Attributes:
        x: the solution.
        residual: :math:`\|b - Ax\| / \|b\|`, of the matrix itself: what damping changes is an error.
    """

    x: Params
    residual: Tensor


def conjugate_gradients(
    product: Callable[[Params], Params], target: Params, steps: int, damping: float = 0.0
) -> LinearSolution:
    r"""A fixed number of steps of conjugate gradients on :math:`(A + \delta I)\,x = b`, from zero.

    There is no branch on values, so that many systems can be solved at once under ``vmap``. A direction of
    negative curvature ends the iteration (its solution so far is kept); if the first one is, the right-hand
    side itself is given back, as Newton's method with conjugate gradients does (Nocedal and Wright,
    algorithm 7.1). The residual says when that was no solution.

    Args:
        product: ``v -> A v``, for a symmetric :math:`A`.
        target: the right-hand side :math:`b`.
        steps: how many, at least 1.
        damping: :math:`\delta`.

    >>> solution = conjugate_gradients(lambda v: {"w": 4 * v["w"]}, {"w": torch.tensor([2.0, 4.0])}, steps=1)
    >>> solution.x["w"], solution.residual
    (tensor([0.5000, 1.0000]), tensor(0.))
    """

    def damped(v: Params) -> Params:
        """The product with the damped matrix."""
        return add_scaled(product(v), v, damping)

    first = image = damped(target)
    x, r, p = tree_map(torch.zeros_like, target), target, target
    energy = start = dot(target, target)
    tiny = torch.finfo(energy.dtype).eps ** 2
    usable = going = (dot(target, image) > 0) & (start > 0)
    for step in range(steps):
        image = image if step == 0 else damped(p)
        bend = dot(p, image)
        going = going & (bend > 0) & (energy > tiny * start)
        length = torch.where(going, energy / torch.where(going, bend, 1.0), 0.0)
        x, r = add_scaled(x, p, length), add_scaled(r, image, -length)
        after = dot(r, r)
        p = add_scaled(r, p, torch.where(going, after / torch.where(going, energy, 1.0), 0.0))
        energy = after
    x = tree_map(lambda solved, b: torch.where(usable, solved, b), x, target)
    r = tree_map(lambda left, b, image: torch.where(usable, left, b - image), r, target, first)
    return LinearSolution(x, relative(add_scaled(r, x, damping), target))


def relative(error: Params, whole: Params) -> Tensor:
    """The norm of ``error`` beside that of ``whole``; zero where both are."""
    size, left = dot(whole, whole).sqrt(), dot(error, error).sqrt()
    return left / torch.where((size > 0) | (left > 0), size, 1.0)
