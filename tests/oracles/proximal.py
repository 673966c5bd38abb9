"""Proximal inner problems by brute force: Newton's method on flat vectors, dense Hessians, dense solves.

Written from the papers, not from ``src``: no conjugate gradients, no products, no update rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.functional import hessian

Value = Callable[[Tensor], Tensor]


class Bilevel(NamedTuple):
    """A support and a query loss, both of a flat vector of parameters, and the penalty between levels."""

    support: Value
    query: Value
    penalty: float


def slope(value: Value, at: Tensor) -> Tensor:
    """The gradient of a loss."""
    leaf = at.detach().clone().requires_grad_()
    return torch.autograd.grad(value(leaf), leaf)[0]


def solution(problem: Bilevel, theta: Tensor) -> Tensor:
    """The minimiser of ``ℓ(φ) + ½λ‖φ − θ‖²``, by Newton's steps of at most full length."""

    def whole(phi: Tensor) -> Tensor:
        return problem.support(phi) + 0.5 * problem.penalty * (phi - theta).square().sum()

    phi = theta.detach().clone()
    for _ in range(100):
        down, bend = slope(whole, phi), hessian(whole, phi)
        if float(down.norm()) < 1e-13:
            break
        step = torch.linalg.solve(bend, down)
        if float(step @ down) <= 0:
            step = down / bend.abs().sum(0).max()
        size = 1.0
        while size > 1e-6 and float(whole(phi - size * step)) > float(whole(phi)) + 1e-14:
            size /= 2
        phi = (phi - size * step).detach()
    return phi


def bilevel_value(problem: Bilevel, theta: Tensor) -> Tensor:
    """``L(φ*(θ))``."""
    return problem.query(solution(problem, theta)).detach()


def bilevel_gradient(problem: Bilevel, theta: Tensor, damping: float = 0.0) -> Tensor:
    """``(I + H/λ)⁻¹ ∇L(φ*)`` with the whole matrix, damped if asked."""
    phi = solution(problem, theta)
    eye = torch.eye(len(theta), dtype=theta.dtype)
    return torch.linalg.solve(
        (1 + damping) * eye + hessian(problem.support, phi) / problem.penalty, slope(problem.query, phi)
    )


def envelope_gradient(problem: Bilevel, theta: Tensor) -> Tensor:
    """``λ(θ − φ*)``."""
    return problem.penalty * (theta - solution(problem, theta))


def flat(tree: dict[str, Tensor]) -> Tensor:
    """All entries one after the other."""
    return torch.cat([value.reshape(-1) for value in tree.values()])


def unflat(vector: Tensor, like: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of :func:`flat`."""
    parts = vector.split([value.numel() for value in like.values()])
    return {name: part.view(value.shape) for (name, value), part in zip(like.items(), parts, strict=True)}
