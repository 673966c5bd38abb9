r"""When is MAML worth it? Closed forms for mixtures of linear regression tasks (Landscape, §3).

Task :math:`i` has inputs :math:`x\sim N(0,\Sigma_i)` and targets :math:`y=\langle w_i^*,x\rangle+z` with
noise
:math:`z\sim N(0,\nu^2)`. The loss is half the *mean* squared error; adaptation is one step of size
:math:`\alpha` on ``s`` samples. Then (eq. 5, Proposition 1)

.. math::
    Q_i^{(s)} &= (I-\alpha\Sigma_i)\Sigma_i(I-\alpha\Sigma_i)
                 + \tfrac{\alpha^2}{s}\big(\operatorname{tr}(\Sigma_i^2)\Sigma_i+\Sigma_i^3\big)\\
    w^*_{NAL} &= E[\Sigma_i]^{-1}E[\Sigma_i w_i^*],\qquad
    w^*_{MAML} = E[Q_i^{(n_2)}]^{-1}E[Q_i^{(n_2)}w_i^*]\\
    \mathcal E_m(w) &= \tfrac12 E_i\,\|w-w_i^*\|^2_{Q_i^{(m)}}

Arrays have shape ``(…, tasks, d, d)`` and ``(…, tasks, d)``: leading axes are environments, all computed at
once. What no initialisation can avoid, :math:`\nu^2/2 + \alpha^2\nu^2\operatorname{tr}(\Sigma_i^2)/2m`, is
kept apart (:func:`irreducible`), as the paper does in its eq. 16.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.solvers.inverse import spd_inverse

Number = float | Tensor
"""A number, or one per environment (a tensor of the leading axes' shape)."""


class Irreducible(NamedTuple):
    """What no initialisation avoids: the noise itself, and the noise that the inner step carries in."""

    noise: Tensor
    step: Tensor


def adapted_curvature(covariances: Tensor, lr: Number, samples: Number) -> Tensor:
    r""":math:`Q^{(s)}` of every covariance, ``(…, d, d)`` (Landscape, below eq. 5).

    Expanded, so that two products suffice:
    :math:`Q=(1+\tfrac{\alpha^2}{s}\operatorname{tr}\Sigma^2)\Sigma-2\alpha\Sigma^2
    +\alpha^2(1+\tfrac1s)\Sigma^3`.

    Args:
        covariances: ``(…, tasks, d, d)``.
        lr: α, for half the mean squared error.
        samples: ``s``; ``inf`` means the full gradient.

    >>> adapted_curvature(torch.tensor([[[0.5]]]), lr=1.0, samples=4)   # ½·¼ + ¼(⅛ + ⅛)
    tensor([[[0.1875]]])
    """
    rate, per = lift(lr, 3), one_over(samples, 3)
    square = covariances @ covariances
    trace = covariances.square().sum((-2, -1), keepdim=True)
    linear = (1 + rate**2 * per * trace) * covariances
    return linear - 2 * rate * square + rate**2 * (1 + per) * (square @ covariances)


def nal_solution(covariances: Tensor, optima: Tensor, weights: Tensor | None = None) -> Tensor:
    r""":math:`w^*_{NAL}=E[\Sigma_i]^{-1}E[\Sigma_iw_i^*]` (eq. 5): the best without adaptation.

    Args:
        covariances: ``(…, tasks, d, d)``.
        optima: ``(…, tasks, d)``.
        weights: how frequent the tasks are, ``(…, tasks)``; all alike if omitted.

    >>> hard, easy = 0.25 * torch.eye(1), 0.75 * torch.eye(1)
    >>> nal_solution(torch.stack([hard, easy]), torch.tensor([[1.0], [0.0]]))
    tensor([0.2500])
    """
    return weighted_optimum(covariances, optima, weights)


def maml_solution(
    covariances: Tensor, optima: Tensor, lr: Number, samples: Number, weights: Tensor | None = None
) -> Tensor:
    r""":math:`w^*_{MAML}=E[Q_i^{(n_2)}]^{-1}E[Q_i^{(n_2)}w_i^*]` (eq. 5): the best before one step.

    Args:
        covariances: ``(…, tasks, d, d)``.
        optima: ``(…, tasks, d)``.
        lr: α, the inner rate.
        samples: n₂, the samples of an inner step in training.
        weights: how frequent the tasks are, ``(…, tasks)``; all alike if omitted.

    >>> hard, easy = 0.5 * torch.eye(1), torch.eye(1)
    >>> maml_solution(torch.stack([hard, easy]), torch.tensor([[1.0], [0.0]]), lr=1.0, samples=float("inf"))
    tensor([1.])
    """
    return weighted_optimum(adapted_curvature(covariances, lr, samples), optima, weights)


def weighted_optimum(curvatures: Tensor, optima: Tensor, weights: Tensor | None = None) -> Tensor:
    r""":math:`E[C_i]^{-1}E[C_iw_i^*]`, ``(…, d)``: the minimiser of :math:`E\|w-w_i^*\|^2_{C_i}`."""
    shares = normalised(weights, optima)
    pull = (shares[..., None] * (curvatures @ optima[..., None])[..., 0]).sum(-2)
    return solve((shares[..., None, None] * curvatures).sum(-3), pull)


def task_risks(w: Tensor, covariances: Tensor, optima: Tensor, lr: Number, samples: Number) -> Tensor:
    r""":math:`\tfrac12\|w-w_i^*\|^2_{Q_i^{(m)}}` of every task, ``(…, tasks)``, for any ``w`` ``(…, d)``.

    No :math:`Q` is formed: with :math:`v=w-w_i^*` and :math:`u=\Sigma v` it is
    :math:`\tfrac12\big[(1+\tfrac{\alpha^2}{m}\operatorname{tr}\Sigma^2)v^\top u-2\alpha\|u\|^2
    +\alpha^2(1+\tfrac1m)u^\top\Sigma u\big]`.

    Args:
        w: where adaptation starts.
        covariances: ``(…, tasks, d, d)``.
        optima: ``(…, tasks, d)``.
        lr: α, the inner rate.
        samples: m, the samples of the inner step.

    >>> task_risks(torch.tensor([1.0]), torch.tensor([[[0.5]]]), torch.tensor([[-1.0]]), lr=1.0, samples=4)
    tensor([0.3750])
    """
    rate, per = lift(lr, 1), one_over(samples, 1)
    v = w[..., None, :] - optima
    u = (covariances @ v[..., None])[..., 0]
    trace = covariances.square().sum((-2, -1))
    cubic = (u * (covariances @ u[..., None])[..., 0]).sum(-1)
    linear = (1 + rate**2 * per * trace) * (v * u).sum(-1)
    return 0.5 * (linear - 2 * rate * u.square().sum(-1) + rate**2 * (1 + per) * cubic)


def excess_risk(
    w: Tensor,
    covariances: Tensor,
    optima: Tensor,
    lr: Number,
    samples: Number,
    weights: Tensor | None = None,
) -> Tensor:
    r""":math:`\mathcal E_m(w)=\tfrac12E_i\|w-w_i^*\|^2_{Q_i^{(m)}}` of any ``w`` (Proposition 1), ``(…)``.

    Args:
        w: where adaptation starts, ``(…, d)``.
        covariances: ``(…, tasks, d, d)``.
        optima: ``(…, tasks, d)``.
        lr: α, the inner rate.
        samples: m, the samples of the inner step.
        weights: how frequent the tasks are, ``(…, tasks)``; all alike if omitted.
    """
    return (normalised(weights, optima) * task_risks(w, covariances, optima, lr, samples)).sum(-1)


def irreducible(
    covariances: Tensor, lr: Number, samples: Number, noise: float, weights: Tensor | None = None
) -> Irreducible:
    r"""The noise's own part of the loss, and what the inner step carries in of it (eq. 16).

    :math:`\nu^2/2` and :math:`\tfrac{\alpha^2\nu^2}{2m}E\operatorname{tr}\Sigma_i^2`.

    Args:
        covariances: ``(…, tasks, d, d)``.
        lr: α.
        samples: m.
        noise: ν, the standard deviation.
        weights: of the tasks.

    >>> irreducible(torch.eye(2)[None], lr=0.5, samples=4, noise=2.0)
    Irreducible(noise=tensor(2.), step=tensor(0.2500))
    """
    rate, per = lift(lr, 1), one_over(samples, 1)
    trace = covariances.square().sum((-2, -1))
    shares = normalised(weights, trace[..., None])
    step = (shares * rate**2 * per * trace).sum(-1) * (noise**2 / 2)
    return Irreducible(torch.full_like(step, noise**2 / 2), step)


def solve(matrices: Tensor, right: Tensor) -> Tensor:
    """The smallest minimiser ``A⁻¹ b`` for symmetric positive semidefinite ``A``."""
    inverse = spd_inverse(matrices)
    minimiser = (inverse @ right[..., None])[..., 0]
    rest = right - (matrices @ minimiser[..., None])[..., 0]
    minimiser = minimiser + (inverse @ rest[..., None])[..., 0]  # what rounding left over
    if bool(torch.isfinite(minimiser).all()):
        return minimiser
    if not bool((matrices.abs().amax((-2, -1)) > 0).all()):
        raise UserError(
            "one step solves every task from anywhere, so that no start is better than another: "
            "give a finite number of samples, or another inner rate."
        )
    return (torch.linalg.pinv(matrices, hermitian=True) @ right[..., None])[..., 0]


def normalised(weights: Tensor | None, optima: Tensor) -> Tensor:
    """Mixture weights that sum to one; equal ones if omitted."""
    tasks = optima.shape[-2]
    if weights is None:
        return optima.new_full((tasks,), 1.0 / tasks)
    total = weights.sum(-1, keepdim=True)
    if bool((weights < 0).any()) or not bool((total > 0).all()) or weights.shape[-1] != tasks:
        raise UserError(f"weights must be {tasks} numbers per environment, none negative and not all zero.")
    return weights / total


def check(covariances: Tensor, optima: Tensor) -> None:
    """Refuses arrays that do not fit together."""
    if (
        covariances.ndim < 3
        or covariances.shape[-1] != covariances.shape[-2]
        or covariances.shape[:-1] != optima.shape
    ):
        raise UserError(
            f"covariances of shape {tuple(covariances.shape)} with optima of shape {tuple(optima.shape)}: "
            "give (…, tasks, d, d) and (…, tasks, d)."
        )


def lift(value: Number, axes: int) -> Number:
    """A number per environment with ``axes`` axes behind, so that it broadcasts; a plain number as it is."""
    return value.reshape(*value.shape, *[1] * axes) if isinstance(value, Tensor) else value


def one_over(samples: Number, axes: int) -> Number:
    """``1/s`` in the form of :func:`lift`; 0 for endless samples."""
    return lift(1.0 / samples, axes)
