r"""The two forms that held in practice, their bracket, and the point inside it.

The forms above assume isotropic optima and realisable labels; on real tasks they come out too large. The
gradient form assumes neither: at the non-adaptive solution, one step of size α changes the query loss by
:math:`-\alpha\langle g_u, g_t\rangle + \tfrac{\alpha^2}{2}g_u^\top G_t g_u`, so the best step for all tasks
at once is

.. math:: \alpha_{grad} = E\langle g_u, g_t\rangle \,/\, E[g_u^\top G_t g_u]

with :math:`g_u, g_t` the gradients of support and query loss and :math:`G_t` the Gauss–Newton matrix of the
query loss.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.theory.rate.moments import Moments, bootstrap, check_stack, weighted_rates

POINTS = ("middle", "gradient", "trace")  # where in the bracket the point may be


class Bracket(NamedTuple):
    """What may be said about a rate before training.

    Attributes:
        low: the smaller of the two forms, divided by the square root of the number of steps.
        high: the larger one.
        point: the rate to use.
        gradient: the gradient form, divided likewise.
        trace: the trace form, likewise.
        interval: 95 % bootstrap interval of the point: sampling error only.
        factor: the stated uncertainty: the right rate lies within this factor of the point, as far as is
            known.
    """

    low: float
    high: float
    point: float
    gradient: float
    trace: float
    interval: tuple[float, float]
    factor: float


def residuals(outputs: Tensor, targets: Tensor, loss: str) -> Tensor:
    """The derivative of the loss by the outputs, per task; outputs ``(tasks, K, k)``."""
    samples = outputs.shape[1]
    if loss.startswith("cross-entropy"):
        one_hot = torch.nn.functional.one_hot(targets, outputs.shape[-1]).to(outputs.dtype)
        slope = outputs.softmax(-1) - one_hot
        return slope / samples if loss == "cross-entropy" else slope
    scale = {"mse": 2 / samples, "half-mse": 1 / samples, "half-sse": 1.0}
    return scale[get_loss(loss).name] * (outputs - targets)


def curvature(outputs: Tensor, directions: Tensor, loss: str) -> Tensor:
    r""":math:`\delta^\top H\delta` of every task, ``H`` the second derivative of the loss by the outputs."""
    samples = outputs.shape[1]
    if loss.startswith("cross-entropy"):
        p = outputs.softmax(-1)
        each = (p * directions.square()).sum(-1) - (p * directions).sum(-1).square()
        total = each.sum(-1)
        return total / samples if loss == "cross-entropy" else total
    scale = {"mse": 2 / samples, "half-mse": 1 / samples, "half-sse": 1.0}
    return scale[get_loss(loss).name] * directions.square().sum((-1, -2))


def gradient_moments(
    support: Tensor,
    query: Tensor,
    support_targets: Tensor,
    query_targets: Tensor,
    loss: str = "mse",
    head: Tensor | None = None,
    outputs: int | None = None,
) -> Moments:
    r"""Moments of the gradient form for a linear head, without forming a gradient of size ``d × k``.

    With residuals :math:`R` (:func:`residuals`),
    :math:`\langle g_u, g_t\rangle = \langle R_u R_t^\top, \Phi_u\Phi_t^\top\rangle` and the query outputs
    move by :math:`\Phi_t\Phi_u^\top R_u`.

    Args:
        support: ``(tasks, k1, d)``.
        query: ``(tasks, k2, d)``.
        support_targets: ``(tasks, k1, k)``, or labels ``(tasks, k1)``.
        query_targets: likewise.
        loss: the convention of the rate.
        head: ``(d, k)`` where to take the gradients, the non-adaptive solution: :func:`pooled_head` for
            numbers; zero (if omitted) for labels that are permuted from task to task. A random head biases
            the rate low.
        outputs: number of outputs; taken from the targets or the head if omitted.
    """
    check_stack(support, "support features")
    check_stack(query, "query features")
    if outputs is None:
        labels = not support_targets.is_floating_point()
        known = int(torch.cat([support_targets, query_targets], 1).max()) + 1 if labels else None
        outputs = head.shape[1] if head is not None else known or support_targets.shape[-1]
    at = head if head is not None else support.new_zeros(support.shape[2], outputs)
    f_u, f_t = support @ at, query @ at
    r_u, r_t = residuals(f_u, support_targets, loss), residuals(f_t, query_targets, loss)
    cross = query @ support.mT
    moved = cross @ r_u
    return Moments((moved * r_t).sum((1, 2)).double(), curvature(f_t, moved, loss).double(), 1.0)


def pooled_head(features: Tensor, targets: Tensor, ridge: float = 1e-6) -> Tensor:
    """The one head that fits all tasks at once (ERM), ``(d, k)``; ``ridge`` is in mean eigenvalues."""
    x, y = features.flatten(0, 1).double(), targets.flatten(0, 1).double()
    second = x.mT @ x
    eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    penalty = ridge * float(second.diagonal().mean())
    return torch.linalg.solve(second + penalty * eye, x.mT @ y).to(features.dtype)


def step_divisor(steps: int) -> float:
    r"""What a one-step rate is divided by for ``steps`` inner steps: :math:`\sqrt{T}`.

    Found by trial: dividing by T, so that all T steps together go as far as one, is too cautious, and not
    dividing at all too bold. For T steps in closed form (:mod:`innerloop.theory.rate.forms`) the
    gradient form falls about as 1/T and the trace form hardly at all, hence their geometric mean as
    :math:`1/\sqrt{T}`. The runs behind this are in ``docs/rate.md``.

    >>> step_divisor(1), step_divisor(4)
    (1.0, 2.0)

    Raises:
        UserError: there is no inner step.
    """
    if steps < 1:
        raise UserError("a rate needs at least one inner step: set {steps}=1.", names=("steps",))
    return math.sqrt(steps)


def bracket(
    gradient: Moments,
    trace: Moments,
    *,
    steps: int = 1,
    point: str = "middle",
    factor: float = 2.0,
    draws: int = 1000,
    seed: int = 0,
) -> Bracket:
    """Both forms divided by the root of the number of inner steps, and a point between them.

    Args:
        gradient: moments of the gradient form.
        trace: moments of the trace form, over the same tasks.
        steps: inner steps; see :func:`step_divisor`.
        point: ``middle`` (the geometric mean: what held for cross-entropy), ``gradient`` (what held for
            squared error on frozen features, where the trace form is too large) or ``trace`` (what held for
            cross-entropy without normalisation layers).
        factor: the uncertainty to state.
        draws: bootstrap samples.
        seed: of the bootstrap.

    Raises:
        UserError: support and query gradients do not agree on average, so that adaptation does not help.
    """
    if point not in POINTS:
        raise UserError(f"point={point}: there are {', '.join(POINTS)}.")
    if float(gradient.numerator.sum()) <= 0:
        raise UserError(
            "support and query gradients point apart on average (E⟨g_u, g_t⟩ ≤ 0): a step on the support set "
            "does not help on the query set here, so there is no rate to give. Check the labels, or use "
            "{no adaptation}.",
            names=("no adaptation",),
        )
    divisor = step_divisor(steps)
    lower, upper = gradient.rate / divisor, trace.rate / divisor
    parts = {"middle": [gradient, trace], "gradient": [gradient], "trace": [trace]}[point]

    def points(weights: Tensor) -> Tensor:
        """The point of the bracket for every row of weights of the tasks."""
        logs = [torch.log(weighted_rates(m, weights).clamp(min=1e-300)) for m in parts]
        return torch.stack(logs).mean(0).exp() / divisor

    chosen = {"middle": math.sqrt(lower * upper), "gradient": lower, "trace": upper}[point]
    return Bracket(
        min(lower, upper),
        max(lower, upper),
        chosen,
        lower,
        upper,
        bootstrap(points, len(gradient.numerator), draws=draws, seed=seed),
        factor,
    )
