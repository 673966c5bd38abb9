r"""Multi-task training with one head per task: Bridge's first-order substitute for meta-learning.

Regression: task ``i`` owns the readout :math:`w_i`. Classification: one matrix with a row per class, and
a task's head is the rows of its classes, so tasks share the rows they have in common.
"""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.losses import is_classification
from innerloop.core.trees import split_prefix
from innerloop.core.types import Buffers, Loss, Params, Task
from innerloop.nets.network import Network
from innerloop.objectives.base import Objective
from innerloop.objectives.episodic import all_samples

PREFIX = "heads."


def multitask(network: Network, loss: Loss, n_heads: int, heads: str = "independent") -> Objective:
    """The loss of a shared body under per-task heads, on all samples of a task; no inner loop.

    The parameters hold the heads stacked, as ``heads.<name>`` with a leading axis of ``n_heads``: tasks for
    regression (found by ``task.id``), classes for classification (``task.id`` lists the task's classes).
    The network's own head stays in the parameters untouched, as the head that test tasks start from.

    Args:
        network: body and head; the head must be linear in ``weight`` and ``bias``.
        loss: the training loss.
        n_heads: number of training tasks (regression) or classes (classification).
        heads: ``shared``: all start from one draw (what Bridge's kernels assume); ``independent``: each
            from its own. Test tasks start from the network's own head: under ``shared`` that same draw.
    """
    if heads not in ("shared", "independent"):
        raise UserError(f"heads must be 'shared' or 'independent', not '{heads}'.")
    class_rows = is_classification(loss)
    if class_rows and heads == "shared":
        raise UserError(
            "class rows cannot start from one shared draw (a class stands at another place in every task): "
            "set {heads}=independent.",
            names=("heads",),
        )

    def init(params: Params, generator: torch.Generator) -> Params:
        stacked: Params = {}
        for name in network.head_names:
            first = params[name]
            shape = (n_heads, *(first.shape[1:] if class_rows else first.shape))
            if heads == "shared":
                stacked[PREFIX + name] = first.expand(shape).clone()
            else:
                # the spread of the head that was drawn (biases start at zero and stay there)
                draw = torch.randn(shape, generator=generator, device=generator.device).to(first)
                stacked[PREFIX + name] = draw * first.square().mean().sqrt()
        return {**params, **stacked}

    def value(params: Params, buffers: Buffers, task: Task) -> tuple[Tensor, Buffers]:
        x, y = all_samples(task)
        z, buffers = network.features(params, buffers, x, "batch")
        return loss.value(network.head(task_head(params, task.id), z), y), buffers

    return Objective(f"multitask({heads} heads)", loss=value, init=init, untrained=tuple(network.head_names))


def task_head(params: Params, index: Tensor) -> Params:
    """The head of one task, under the network's own names.

    ``index`` is a task number (its own head), or the class numbers of a classification task (their rows).
    """
    stacked, _ = split_prefix(params, PREFIX)
    return {name[len(PREFIX) :]: value[index] for name, value in stacked.items()}
