"""Learning from labels and from a network that was trained before: self-distillation, one generation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch.nn.functional as F
from torch import Tensor

from innerloop.core.arguments import checked
from innerloop.core.losses import get_loss
from innerloop.core.types import Buffers, Loss, Params, Task, all_samples
from innerloop.learners.objectives.base import Objective
from innerloop.nets.network import Network, apply
from innerloop.nets.norms import statistics_for

Teacher: TypeAlias = Callable[[Tensor], Tensor]
"""Inputs → outputs of a network that is not trained any more."""


def teacher_of(network: Network, params: Params, buffers: Buffers) -> Teacher:
    """A trained network as a teacher: it predicts as at test, and no gradient flows through it.

    Args:
        network: the teacher's network.
        params: its trained parameters.
        buffers: its buffers.
    """
    statistics = statistics_for(network.norm, "query", training=False)
    fixed = {name: value.detach() for name, value in params.items()}

    def outputs(x: Tensor) -> Tensor:
        """The teacher's outputs, without a graph."""
        return apply(network, fixed, buffers, x, statistics)[0].detach()

    return outputs


def divergence(outputs: Tensor, taught: Tensor, temperature: float) -> Tensor:
    """T²·KL(softmax(t/T)‖softmax(s/T)), mean over samples; T² keeps gradients as large (Hinton 2015)."""
    said = F.log_softmax(outputs / temperature, dim=-1)
    wanted = F.log_softmax(taught / temperature, dim=-1)
    return temperature**2 * (wanted.exp() * (wanted - said)).sum(-1).mean()


@checked
def distilled(
    network: Network,
    loss: Loss | str,
    teacher: Teacher,
    label_weight: float = 0.5,
    teacher_weight: float = 0.5,
    temperature: float = 4.0,
) -> Objective:
    r"""ERM with a teacher (RFS-distill, Tian et al. 2020): one generation of a born-again network.

    .. math:: L(\theta) = \alpha\,\ell(f_\theta(X), Y) + \beta\,D_T(f_\theta(X), t(X))

    with the :func:`divergence` :math:`D_T`.

    Args:
        network: the student.
        loss: cross-entropy on the labels.
        teacher: outputs of the generation before, over the same classes in the same order.
        label_weight: :math:`\alpha`.
        teacher_weight: :math:`\beta`. RFS has 0.5 for both, and finds much the same with a weight of 1 here.
        temperature: :math:`T`; 4 in RFS.
    """
    loss = get_loss(loss)

    def value(params: Params, buffers: Buffers, task: Task) -> tuple[Tensor, Buffers]:
        """The loss of one minibatch, and the buffers after it."""
        x, y = all_samples(task)
        outputs, buffers = apply(network, params, buffers, x, "batch")
        apart = divergence(outputs, teacher(x), temperature)
        return label_weight * loss.value(outputs, y) + teacher_weight * apart, buffers

    return Objective("erm(distilled)", loss=value)
