"""Non-adaptive learning: no inner loop."""

from __future__ import annotations

from torch import Tensor

from innerloop.core.arguments import checked
from innerloop.core.losses import get_loss
from innerloop.core.types import Buffers, Loss, Params, Task
from innerloop.learners.objectives.base import Objective
from innerloop.learners.objectives.episodic import all_samples
from innerloop.nets.network import Network, apply


@checked
def erm(network: Network, loss: Loss | str) -> Objective:
    r"""The loss of one shared predictor on all samples of a task (ERM; NAL in Landscape).

    .. math:: L(\theta) = \ell\big(f_\theta(X' \cup X), Y' \cup Y\big)
    """
    loss = get_loss(loss)

    def value(params: Params, buffers: Buffers, task: Task) -> tuple[Tensor, Buffers]:
        """The loss of one task, and the buffers after it."""
        x, y = all_samples(task)
        # support and query are one training batch here, whatever the norm policy
        outputs, buffers = apply(network, params, buffers, x, "batch")
        return loss.value(outputs, y), buffers

    return Objective("erm", loss=value)
