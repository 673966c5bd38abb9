"""The loss of a task: through its inner loop, or without one."""

from __future__ import annotations

from torch import Tensor

from innerloop.core.arguments import checked
from innerloop.core.losses import get_loss
from innerloop.core.types import Buffers, Loss, Params, Task, all_samples
from innerloop.learners.base import Learner
from innerloop.learners.objectives.base import Objective
from innerloop.nets.network import Network, apply


@checked
def episodic(learner: Learner, loss: Loss | str, split: bool = True) -> Objective:
    r"""The query loss after adapting to the support set, differentiated as the learner says.

    .. math:: L(\theta) = \ell\big(f_{A(\theta; X', Y')}(X), Y\big)

    The gradient passes the adaptation by automatic differentiation, unless the learner has an ``outer`` of
    its own (iMAML, Meta-MinibatchProx).

    Args:
        learner: supplies the adaptation :math:`A`.
        loss: the query loss.
        split: whether to adapt to the support set and judge on the query set; otherwise both happen on all
            samples (Bridge's setting without split).
    """
    loss = get_loss(loss)
    outer = learner.outer

    def value(params: Params, buffers: Buffers, task: Task) -> tuple[Tensor, Buffers]:
        """The query loss of one task, and the buffers after it."""
        if outer is not None:
            return outer(params, buffers, task, loss, split)
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
