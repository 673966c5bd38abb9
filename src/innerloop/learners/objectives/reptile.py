"""Reptile: move towards the adapted parameters."""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.core.arguments import checked
from innerloop.core.losses import get_loss
from innerloop.core.types import Buffers, Loss, Params, Task, all_samples
from innerloop.learners.base import Learner
from innerloop.learners.objectives.base import Objective


@checked
def reptile(learner: Learner, loss: Loss | str) -> Objective:
    r"""Reptile (Nichol et al. 2018): the pseudo-gradient of a task is :math:`\theta - A(\theta)`.

    The inner loop adapts to all samples of the task; no gradient flows through it. With a meta-optimiser
    of plain SGD with rate ε this is the paper's update
    :math:`\theta \leftarrow \theta + \epsilon(A(\theta)-\theta)`.
    """
    loss = get_loss(loss)

    def direction(params: Params, buffers: Buffers, task: Task) -> tuple[Params, Tensor, Buffers]:
        """The pseudo-gradient of one task, its query loss, and the buffers after it."""
        x, y = all_samples(task)
        start = {name: value.detach() for name, value in params.items()}
        with torch.no_grad():
            adapted = learner.adapt(start, buffers, x, y, training=True)
            outputs, buffers = learner.predict(adapted, task.x_query, training=True)
            value = loss.value(outputs, task.y_query)
        return {name: p - adapted.params[name] for name, p in start.items()}, value, buffers

    return Objective(f"reptile({learner.name})", direction=direction)
