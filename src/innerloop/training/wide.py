"""Wide networks trained as the theorems have it: full-batch descent, losses, and paths of weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from innerloop.core.losses import get_loss
from innerloop.core.types import Params, Task, TaskBatch, all_samples
from innerloop.kernels.empirical.exact import jacobian_kernel
from innerloop.learners.base import Learner
from innerloop.learners.gradient import anil, maml
from innerloop.learners.objectives.base import Objective
from innerloop.learners.objectives.multitask import multitask, task_head
from innerloop.nets.network import Network
from innerloop.theory.convergence import linear_loss

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
    """``steps`` steps of plain gradient descent."""
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


class Course(NamedTuple):
    r"""What was seen while training."""

    losses: list[float]
    path: float
    distance: float
    first: Tensor
    drift: float
    residual: Tensor


def adapted_outputs(learner: Learner, tasks: TaskBatch) -> Callable[[Params], Tensor]:
    """``params -> F_θ(𝒳, 𝒳', 𝒴')`` as one vector: task by task, sample by sample."""
    return lambda params: meta_outputs(learner, params, tasks).flatten()


def head_outputs(network: Network, tasks: TaskBatch) -> Callable[[Params], Tensor]:
    """``params -> f(𝒳)`` as one vector, every task under its own head (``multitask`` adds the heads)."""

    def one(params: Params, task: Task) -> Tensor:
        """The outputs of one task."""
        x, _ = all_samples(task)
        return network.head(task_head(params, task.id), network.features(params, {}, x, "batch")[0])

    def outputs(params: Params) -> Tensor:
        """The outputs of all tasks, one after the other."""
        by_task = torch.func.vmap(lambda *fields: one(params, Task(*fields)))(*tasks)
        assert isinstance(by_task, Tensor)
        return by_task.flatten()

    return outputs


def watch_course(
    outputs: Callable[[Params], Tensor],
    targets: Tensor,
    params: Params,
    eta: float,
    steps: int,
) -> Course:
    """Full-batch gradient descent on ½‖outputs − targets‖², watched."""
    first = jacobian_kernel(outputs, params)
    losses: list[float] = []
    previous, path, drift = params, 0.0, 0.0

    def watch(step: int, now: Params, loss: float) -> None:
        """Notes the loss, the length of the path and, now and then, how far the kernel has moved."""
        nonlocal previous, path, drift
        losses.append(loss)
        path += distance(now, previous)
        previous = now
        if step in (round(steps / 2), steps) and step > 0:
            drift = max(drift, float((jacobian_kernel(outputs, now) - first).norm()))

    end = descend(lambda p: (outputs(p) - targets).square().sum() / 2, params, eta, steps, watch)
    with torch.no_grad():
        residual = outputs(params) - targets
    return Course(losses, path, distance(end, params), first, drift, residual)


def off_linear(course: Course, eta: float) -> float:
    r"""How far training is from its linearisation, in errors: :math:`\max_t|e_t-\bar e_t|/e_0`."""
    # e_t = √(2L_t), and ē_t = ‖(I − ηΦ̂₀)ᵗ r₀‖ if the kernel stood still
    times = torch.arange(len(course.losses), dtype=course.first.dtype)
    still = linear_loss(course.first, course.residual[:, None], eta, times)
    gap = (torch.tensor(course.losses).to(still).sqrt() - still.sqrt()).abs().max()
    return float(gap) / course.losses[0] ** 0.5


def distance(a: Params, b: Params) -> float:
    """The Euclidean distance of two sets of parameters."""
    with torch.no_grad():
        return float(sum((a[name] - b[name]).square().sum() for name in a)) ** 0.5


def without_split(tasks: TaskBatch) -> TaskBatch:
    """All samples of a task both as its support and as its query set (Bridge's setting)."""
    x, y = torch.cat([tasks.x_support, tasks.x_query], 1), torch.cat([tasks.y_support, tasks.y_query], 1)
    return tasks._replace(x_support=x, y_support=y, x_query=x, y_query=y)


def watch_method(
    method: Literal["maml", "anil", "mtl"],
    network: Network,
    params: Params,
    tasks: TaskBatch,
    eta: float,
    steps: int,
    *,
    inner: tuple[float, int],
    heads: str = "shared",
) -> Course:
    """:func:`watch_course` of a meta-learner on the summed loss ½‖F − Y‖²."""
    loss = get_loss("half-sse")
    if method == "mtl":
        objective = multitask(network, loss, tasks.size, heads=heads)
        params = objective.init(params, torch.Generator().manual_seed(0))
        targets = torch.cat([tasks.y_support, tasks.y_query], 1).flatten()
        return watch_course(head_outputs(network, tasks), targets, params, eta, steps)
    learner = (maml if method == "maml" else anil)(network, loss, *inner)
    return watch_course(adapted_outputs(learner, tasks), tasks.y_query.flatten(), params, eta, steps)
