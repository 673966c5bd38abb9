r"""Full-batch gradient descent on the summed squared loss: the training that theorems speak of."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.core.types import Params, Task, TaskBatch
from innerloop.learners.base import Learner
from innerloop.learners.objectives.base import Objective

Watch = Callable[[int, Params, float], None]
"""Told ``(step, parameters, loss)`` before every step, and after the last."""


def meta_outputs(learner: Learner, params: Params, tasks: TaskBatch) -> Tensor:
    """Query outputs after adapting to each support set: F_θ, ``(tasks, n, k)``, differentiable."""

    def one(x_support: Tensor, y_support: Tensor, x_query: Tensor) -> Tensor:
        """The outputs of one task."""
        return learner.predict(learner.adapt(params, {}, x_support, y_support), x_query)[0]

    return torch.func.vmap(one)(tasks.x_support, tasks.y_support, tasks.x_query)


def episodic_loss(learner: Learner, tasks: TaskBatch) -> Callable[[Params], Tensor]:
    r""":math:`\tfrac12\sum_i\|F_\theta(X_i,X'_i,Y'_i) - Y_i\|^2` (MetaNTK, eq. 2)."""
    return lambda params: (meta_outputs(learner, params, tasks) - tasks.y_query).square().sum() / 2


def objective_loss(objective: Objective, tasks: TaskBatch) -> Callable[[Params], Tensor]:
    """The sum of an objective's loss over all tasks; with ``half-sse`` it is the theorems' loss."""

    def one(params: Params, *fields: Tensor) -> Tensor:
        """The loss of one task."""
        assert objective.loss is not None
        return objective.loss(params, {}, Task(*fields))[0]

    def loss(params: Params) -> Tensor:
        """The sum over all tasks."""
        return torch.func.vmap(one, in_dims=(None, 0, 0, 0, 0, 0))(params, *tasks).sum()

    return loss


def descend(
    loss: Callable[[Params], Tensor],
    params: Params,
    lr: float,
    steps: int,
    watch: Watch | None = None,
) -> Params:
    """``steps`` steps of plain gradient descent.

    >>> descend(lambda p: p["w"].square().sum() / 2, {"w": torch.ones(1)}, 0.5, 3)["w"]
    tensor([0.1250])
    """
    gradient = torch.func.grad_and_value(loss)
    for step in range(steps):
        grads, value = gradient(params)
        if watch is not None:
            watch(step, params, float(value))
        params = {name: p - lr * grads[name] for name, p in params.items()}
    if watch is not None:
        with torch.no_grad():
            watch(steps, params, float(loss(params)))
    return params
