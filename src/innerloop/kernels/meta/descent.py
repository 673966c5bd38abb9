r"""Gradient descent on a squared loss, seen through a kernel: how far it has gone, and what it answers.

Everywhere in this room the loss is the *sum* :math:`\tfrac12\|f - y\|^2` (Bridge, MetaNTK): a learning rate
of a mean loss over m samples is m times the rate meant here (:func:`innerloop.core.losses.rate_factor`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.errors import UserError


class Descent(NamedTuple):
    r"""How far gradient descent goes, in one loop: inner, outer, or at test time.

    Attributes:
        time: :math:`s = \lambda\tau`, rate times steps; 0 does nothing, ``inf`` goes to convergence.
        steps: ``None`` is gradient flow; a number is this many real steps of size ``time / steps``.
        ridge: :math:`\varepsilon`, added to the kernel that is inverted, not to the one that is
            exponentiated: :math:`(K+\varepsilon I)^{-1}(I - e^{-sK})`, as MetaNTK's published recipe does.
        relative: whether ``ridge`` is in units of the mean diagonal entry of the kernel.
    """

    time: float = math.inf
    steps: int | None = None
    ridge: float = 0.0
    relative: bool = False


def check_descent(descent: Descent) -> None:
    """Refuses what cannot be meant."""
    if not descent.time >= 0 or not descent.ridge >= 0:
        raise UserError(
            f"time and ridge are at least 0, got {descent.time} and {descent.ridge}: give a number or inf."
        )
    if descent.steps is not None and (math.isinf(descent.time) or descent.steps < 1):
        raise UserError(
            "a number of steps needs a finite time (rate × steps) and at least one step: give time=0.5, or "
            "leave steps out for gradient flow."
        )


def remaining(values: Tensor, descent: Descent) -> Tensor:
    r"""The share of a residual that is left, by eigenvalue: :math:`e^{-sw}` or :math:`(1-\lambda w)^\tau`."""
    if math.isinf(descent.time):
        return torch.zeros_like(values)
    if descent.steps is None:
        return torch.exp(-descent.time * values)
    return (1 - descent.time / descent.steps * values) ** descent.steps


def moved(values: Tensor, descent: Descent) -> Tensor:
    r"""The share that is gone: :math:`1-e^{-sw}` or :math:`1-(1-\lambda w)^\tau`, by eigenvalue."""
    if math.isinf(descent.time):
        return torch.ones_like(values)
    if descent.steps is None:
        return -torch.expm1(-descent.time * values)
    step = descent.time / descent.steps * values
    # log1p keeps the digits of small eigenvalues; from λw = ½ on none can be lost, and λw may exceed 1
    small = -torch.expm1(descent.steps * torch.log1p(-step.clamp(max=0.5)))
    return torch.where(step < 0.5, small, 1 - (1 - step) ** descent.steps)


def weights(values: Tensor, descent: Descent) -> Tensor:
    """The eigenvalues of :math:`T_K^s` from those of K (last axis)."""
    # where K is singular, descent does not move: 0 at ``time=inf`` (the pseudo-inverse), else the limit s
    check_descent(descent)
    values = values.clamp(min=0)
    unit: Tensor | float = values.mean(-1, keepdim=True) if descent.relative else 1.0
    bottom = values + descent.ridge * unit
    if math.isinf(descent.time):
        largest = values.amax(-1, keepdim=True)
        floor = torch.finfo(values.dtype).eps * values.shape[-1] * largest
        return torch.where(bottom > floor, 1 / bottom.clamp(min=torch.finfo(values.dtype).tiny), 0.0)
    safe = torch.where(bottom > 0, bottom, 1.0)
    return torch.where(bottom > 0, moved(values, descent) / safe, descent.time)


def response(gram: Tensor, descent: Descent) -> Tensor:
    r"""Labels to coefficients: :math:`T_K^s = K^{-1}(I-e^{-sK})` or :math:`K^{-1}(I-(I-\lambda K)^\tau)`."""
    values, vectors = torch.linalg.eigh(gram)
    return (vectors * weights(values, descent)[..., None, :]) @ vectors.mT


def residual(gram: Tensor, descent: Descent) -> Tensor:
    r"""What is left of a residual on the samples descended on: :math:`I - K T_K^s`, or :math:`e^{-sK}`."""
    check_descent(descent)
    values, vectors = torch.linalg.eigh(gram)
    values = values.clamp(min=0)
    left = remaining(values, descent) if descent.ridge == 0 else 1 - values * weights(values, descent)
    return (vectors * left[..., None, :]) @ vectors.mT


def respond(gram: Tensor, labels: Tensor, descent: Descent) -> Tensor:
    r""":math:`T_K^s\,y` for one large kernel and any number of right-hand sides."""
    # at convergence by Cholesky, twenty times cheaper than eigenvectors, unless K is singular to working
    # precision
    check_descent(descent)
    if math.isinf(descent.time):
        diagonal = gram.diagonal()
        shift = descent.ridge * diagonal.mean() if descent.relative else descent.ridge
        factor, failed = torch.linalg.cholesky_ex(gram + torch.diag_embed(torch.zeros_like(diagonal) + shift))
        # a pivot that rounding has eaten passes as positive definite and gives noise
        digits = factor.diagonal().square().amin() / diagonal.amax().clamp(min=torch.finfo(gram.dtype).tiny)
        if not bool(failed) and float(digits) > torch.finfo(gram.dtype).eps * len(gram):
            return torch.cholesky_solve(labels, factor)
    values, vectors = torch.linalg.eigh(gram)
    return vectors @ (weights(values, descent)[:, None] * (vectors.mT @ labels))
