"""Finite samples of linear tasks: exact minimisers, and SGD on both objectives, many runs at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.theory.landscape.forms import solve


def empirical_nal(x: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
    r""":math:`w_{NAL}=\big(\sum_iX_i^\top X_i\big)^{-1}\sum_iX_i^\top y_i` (eq. 41), ``(…, d)``.

    Args:
        x: ``(…, tasks, n, d)``.
        y: ``(…, tasks, n)``.
        weights: of the tasks, ``(…, tasks)``: hard tasks may be up-weighted (ζ of Table 3).

    >>> import torch
    >>> empirical_nal(torch.tensor([[[1.0], [2.0]]]), torch.tensor([[1.0, 3.0]]))   # (1 + 6)/(1 + 4)
    tensor([1.4000])
    """
    return _least_squares(x, y, weights)


def empirical_maml(
    x_in: Tensor, y_in: Tensor, x_out: Tensor, y_out: Tensor, lr: float, weights: Tensor | None = None
) -> Tensor:
    r""":math:`w_{MAML}` (eq. 43), ``(…, d)``: the minimiser of the outer loss after one inner step.

    In data instead of optima and noise: with :math:`\hat C=X_{out}\hat P`,
    :math:`w=\big(\sum\hat C^\top\hat C\big)^{-1}\sum\hat C^\top
    \big(y_{out}-\tfrac{\alpha}{n_2}X_{out}X_{in}^\top y_{in}\big)`. (Eq. 42, from which the paper derives
    it, has the sign of the inner noise wrong; eq. 43 is right.)

    Args:
        x_in: ``(…, episodes, n₂, d)``; the episodes of all tasks.
        y_in: ``(…, episodes, n₂)``.
        x_out: ``(…, episodes, n₁, d)``.
        y_out: ``(…, episodes, n₁)``.
        lr: α, for half the mean squared error.
        weights: of the episodes.

    >>> import torch
    >>> one = torch.ones(1, 1, 1)
    >>> empirical_maml(one, torch.ones(1, 1), one, torch.ones(1, 1), lr=0.5)
    tensor([1.])
    """
    step = lr / x_in.shape[-2]
    gram = x_in.mT @ x_in
    left = x_out - step * (x_out @ gram)
    moved = step * (x_out @ (x_in.mT @ y_in[..., None]))[..., 0]
    return _least_squares(left, y_out - moved, weights)


def _least_squares(x: Tensor, y: Tensor, weights: Tensor | None) -> Tensor:
    if weights is not None:
        root = weights.sqrt()[..., None]
        x, y = x * root[..., None], y * root
    rows = x.flatten(-3, -2)
    return solve(rows.mT @ rows, (rows.mT @ y.flatten(-2)[..., None])[..., 0])


class TaskMoments(NamedTuple):
    r"""``gram`` :math:`X^\top X/n` ``(…, d, d)`` and ``pull`` :math:`X^\top z/n` ``(…, d)`` of a task."""

    gram: Tensor
    pull: Tensor


class GaussianTasks(NamedTuple):
    """Tasks of one step: scales ``rho`` ``(…, tasks)`` of the covariance, ``optima`` ``(…, tasks, d)``."""

    rho: Tensor
    optima: Tensor


def draw_moments(
    rho: Tensor, dim: int, samples: int, noise: float, generator: torch.Generator
) -> TaskMoments:
    r"""Moments of inputs :math:`x\sim N(0,\rho I_d)` with noise, for every entry of ``rho``."""
    if samples < dim:
        raise UserError(f"{samples} samples in {dim} dimensions: these draws need at least as many samples.")
    shape = rho.shape
    factor = torch.randn(*shape, dim, dim, generator=generator, dtype=rho.dtype).tril_(-1)
    freedom = samples - torch.arange(dim, dtype=rho.dtype)
    # chi-square with k degrees is twice a gamma with k/2
    chi = 2 * torch._standard_gamma((freedom / 2).expand(*shape, dim).contiguous(), generator=generator)
    factor = factor + torch.diag_embed(chi.sqrt())
    root = factor * (rho[..., None, None].sqrt() / math.sqrt(samples))
    z = torch.randn(*shape, dim, 1, generator=generator, dtype=rho.dtype) * (noise / math.sqrt(samples))
    return TaskMoments(root @ root.mT, (root @ z)[..., 0])


def nal_gradient(w: Tensor, optima: Tensor, data: TaskMoments) -> Tensor:
    r""":math:`G(w-w^*)-c`: the gradient of half the mean squared error, ``(…, tasks, d)``."""
    return (data.gram @ (w[..., None, :] - optima)[..., None])[..., 0] - data.pull


def maml_gradient(w: Tensor, optima: Tensor, inner: TaskMoments, outer: TaskMoments, lr: float) -> Tensor:
    r""":math:`\hat P\big(G_{out}(w'-w^*)-c_{out}\big)` with :math:`w'=w-\alpha(G_{in}(w-w^*)-c_{in})`."""
    adapted = w[..., None, :] - lr * nal_gradient(w, optima, inner)
    outer_gradient = (outer.gram @ (adapted - optima)[..., None])[..., 0] - outer.pull
    return outer_gradient - lr * (inner.gram @ outer_gradient[..., None])[..., 0]


def linear_sgd(
    tasks: Callable[[torch.Generator], GaussianTasks],
    *,
    start: Tensor,
    method: str,
    lr: float,
    outer_lr: Tensor | float,
    inner_shots: int,
    outer_shots: int,
    noise: float,
    steps: int,
    generator: torch.Generator,
    weigh: Callable[[GaussianTasks], Tensor] | None = None,
) -> Tensor:
    """Where SGD on fresh tasks ends, for every run of the leading axes.

    NAL's samples are the outer and inner ones together (the paper's ``n = n₁ + n₂``).

    Args:
        tasks: draws the tasks of one step for all runs.
        start: ``(…, d)``.
        method: ``nal`` or ``maml``.
        lr: α, of the inner step.
        outer_lr: of SGD.
        inner_shots: n₂.
        outer_shots: n₁.
        noise: ν.
        steps: how many.
        generator: of all draws.
        weigh: weights of the tasks of a step, ``(…, tasks)``; equal if omitted.
    """
    if method not in ("nal", "maml"):
        raise UserError(f"method must be nal or maml, not '{method}'.")
    w, dim = start.clone(), start.shape[-1]
    for _ in range(steps):
        rho, optima = tasks(generator)
        if method == "nal":
            data = draw_moments(rho, dim, inner_shots + outer_shots, noise, generator)
            gradients = nal_gradient(w, optima, data)
        else:
            inner = draw_moments(rho, dim, inner_shots, noise, generator)
            outer = draw_moments(rho, dim, outer_shots, noise, generator)
            gradients = maml_gradient(w, optima, inner, outer, lr)
        shares = weigh(GaussianTasks(rho, optima)) if weigh else gradients.new_ones(()) / gradients.shape[-2]
        w = w - outer_lr * (shares[..., None] * gradients).sum(-2)
    return w
