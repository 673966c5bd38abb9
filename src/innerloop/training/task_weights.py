r"""SGD on any objective with weights on the tasks of a batch: Landscape's hard-task up-weighting ζ.

``erm`` is the paper's NAL objective, ``episodic(maml(…))`` its MAML objective. Oversampling hard tasks (the
paper's ``p``) is a matter of the sampler: ``hard_share`` of the ``linear`` family, ``share`` of a few-shot
kind. Recipes have both for groups of classes, ``tasks.hard_share`` and ``outer.hard_weight``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params, Task, TaskBatch
from innerloop.learners.objectives.base import Objective
from innerloop.tasks.sampler import Sampler


def hard_weights(hard: Tensor, zeta: float, dtype: torch.dtype | None = None) -> Tensor:
    r"""Weights of the tasks of a batch: ζ for hard ones against 1, normalised *within the batch*.

    With ``h`` hard and ``e`` easy tasks a hard one weighs :math:`\zeta/(h\zeta+e)` (Landscape, C.1).

    Args:
        hard: ``(…, tasks)``, which tasks are hard.
        zeta: ζ; 1 weighs all tasks alike.
        dtype: of the weights; torch's default if omitted.

    >>> hard_weights(torch.tensor([True] * 6 + [False] * 4), zeta=2.0)[[0, 9]]
    tensor([0.1250, 0.0625])
    """
    if not zeta > 0:
        raise UserError(f"zeta must be positive, not {zeta}.")
    weights = 1 + (zeta - 1) * hard.to(dtype or torch.get_default_dtype())
    return weights / weights.sum(-1, keepdim=True)


def batch_weights(sampler: Sampler, step: int, batch: int, zeta: float, params: Params) -> Tensor | None:
    """What the tasks of the ``step``-th meta-batch weigh; None where all weigh the same."""
    if zeta == 1.0 or sampler.hard is None:
        return None
    hard = torch.from_numpy(sampler.hard(range(step * batch, (step + 1) * batch)))
    return hard_weights(hard, zeta, torch.float64).to(next(iter(params.values())))


def weighted_gradient(
    objective: Objective, params: Params, buffers: Buffers, batch: TaskBatch, weights: Tensor | None = None
) -> tuple[Params, Tensor, Buffers]:
    r"""The gradient of :math:`\sum_tw_tL_t(\theta)`, all losses, and the buffers averaged over tasks."""
    if objective.loss is None:
        raise UserError(f"'{objective.name}' has no loss to weigh: choose episodic, erm or multitask.")
    loss = objective.loss
    shares = weights if weights is not None else torch.full((batch.size,), 1.0 / batch.size)

    def total(p: Params) -> tuple[Tensor, tuple[Tensor, Buffers]]:
        """The weighted sum of losses; besides it every task's loss and buffers."""
        losses, after = torch.func.vmap(loss, in_dims=(None, None, 0))(p, buffers, Task(*batch))
        return (shares.to(losses) * losses).sum(), (losses, after)

    grads, (losses, after) = torch.func.grad(total, has_aux=True)(params)
    return grads, losses.detach(), {name: value.detach().mean(0) for name, value in after.items()}


def descend(
    objective: Objective,
    params: Params,
    buffers: Buffers,
    batches: Iterable[tuple[TaskBatch, Tensor | None]],
    lr: float,
    watch: Callable[[int, Tensor], None] | None = None,
) -> tuple[Params, Buffers]:
    """Plain SGD on the batches, one step each; parameters that the objective does not read stay."""
    for step, (batch, weights) in enumerate(batches):
        grads, losses, buffers = weighted_gradient(objective, params, buffers, batch, weights)
        if not bool(torch.isfinite(losses).all()):
            raise UserError(f"step {step + 1}: a loss is not finite: lower the learning rates.")
        params = {name: value - lr * grads[name] for name, value in params.items()}
        if watch is not None:
            watch(step, losses)
    return params, buffers
