"""Wide networks trained as the theorems have it: the loss, the way of the parameters, the kernel's drift."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.types import Params, TaskBatch
from innerloop.kernels.exact import jacobian_kernel
from innerloop.learners.base import Learner
from innerloop.training.full_batch import descend, meta_outputs


class Course(NamedTuple):
    r"""What was seen while training.

    Attributes:
        losses: ½‖F − Y‖² before every step and after the last.
        path: the length of the way, :math:`\sum_t\|\theta_t - \theta_{t-1}\|`.
        distance: ‖θ_T − θ_0‖.
        first: Φ̂ before training, the exact one.
        drift: ‖Φ̂_t − Φ̂_0‖_F, the largest over the times looked at.
    """

    losses: list[float]
    path: float
    distance: float
    first: Tensor
    drift: float


def adapted_outputs(learner: Learner, tasks: TaskBatch) -> Callable[[Params], Tensor]:
    """``params -> F_θ(𝒳, 𝒳', 𝒴')`` as one vector: task by task, sample by sample."""
    return lambda params: meta_outputs(learner, params, tasks).flatten()


def watch_course(
    outputs: Callable[[Params], Tensor],
    targets: Tensor,
    params: Params,
    eta: float,
    steps: int,
    looks: int = 2,
    chunk: int | None = None,
) -> Course:
    """Full-batch gradient descent on ½‖outputs − targets‖², watched.

    Args:
        outputs: of all training samples as one vector, from the parameters.
        targets: the vector they should become.
        params: where to start.
        eta: the rate.
        steps: how many.
        looks: how often to take the kernel again, at equal distances; the last is after the last step.
        chunk: rows of a Jacobian at a time.

    >>> course = watch_course(lambda p: p["w"], torch.zeros(1), {"w": torch.ones(1)}, 0.5, 2)
    >>> course.losses, course.path, course.drift
    ([0.5, 0.125, 0.03125], 0.75, 0.0)
    """
    first = jacobian_kernel(outputs, params, chunk)
    at = {round(steps * (i + 1) / looks) for i in range(looks)}
    losses: list[float] = []
    previous, path, drift = params, 0.0, 0.0

    def watch(step: int, now: Params, loss: float) -> None:
        nonlocal previous, path, drift
        losses.append(loss)
        path += distance(now, previous)
        previous = now
        if step in at and step > 0:
            drift = max(drift, float((jacobian_kernel(outputs, now, chunk) - first).norm()))

    end = descend(lambda p: (outputs(p) - targets).square().sum() / 2, params, eta, steps, watch)
    return Course(losses, path, distance(end, params), first, drift)


def distance(a: Params, b: Params) -> float:
    """The Euclidean distance of two sets of parameters."""
    with torch.no_grad():
        return float(sum((a[name] - b[name]).square().sum() for name in a)) ** 0.5
