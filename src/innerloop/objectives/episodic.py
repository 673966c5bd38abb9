"""Learning through the inner loop."""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.core.types import Buffers, Loss, Params, Task
from innerloop.learners.base import Learner
from innerloop.objectives.base import Objective


def all_samples(task: Task) -> tuple[Tensor, Tensor]:
    """Support and query together, support first."""
    x = torch.cat([task.x_support, task.x_query])
    return x, torch.cat([task.y_support, task.y_query])


def episodic(learner: Learner, loss: Loss, split: bool = True) -> Objective:
    r"""The query loss after adapting to the support set, differentiated through the adaptation.

    .. math:: L(\theta) = \ell\big(f_{A(\theta; X', Y')}(X), Y\big)

    Args:
        learner: supplies the adaptation :math:`A`.
        loss: the query loss.
        split: whether to adapt to the support set and judge on the query set; otherwise both happen on all
            samples (Bridge's setting without split).
    """

    def value(params: Params, buffers: Buffers, task: Task) -> tuple[Tensor, Buffers]:
        if split:
            x_in, y_in, x_out, y_out = task.x_support, task.y_support, task.x_query, task.y_query
        else:
            x_in, y_in = all_samples(task)
            x_out, y_out = x_in, y_in
        if learner.together is not None and split:
            outputs, buffers = learner.together(params, buffers, x_in, y_in, x_out)
            return loss.value(outputs, y_out), buffers
        adapted = learner.adapt(params, buffers, x_in, y_in, training=True)
        outputs, buffers = learner.predict(adapted, x_out, training=True)
        return loss.value(outputs, y_out), buffers

    return Objective(f"episodic({learner.name})", loss=value, untrained=learner.untrained)
