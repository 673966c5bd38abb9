"""How much a learner's scores depend on the order of a task's labels. Builds no graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.losses import score
from innerloop.core.types import Buffers, Loss, Params, Task
from innerloop.learners.base import Learner
from innerloop.learners.orders import mean_prediction, relabelled
from innerloop.tasks.sampler import Sampler
from innerloop.training.execution.plan import Plan, torch_threads
from innerloop.training.execution.tasks import map_tasks


class ByOrder(NamedTuple):
    """Scores of the same episodes with their labels in several orders.

    Attributes:
        scores: ``(episodes, orders)``; the first order is that of the episodes themselves.
        averaged: ``(episodes,)``, of the probabilities averaged over the orders.
    """

    scores: Tensor
    averaged: Tensor

    @property
    def spread(self) -> Tensor:
        """Per episode, the best score of any order less the worst."""
        return self.scores.amax(1) - self.scores.amin(1)

    @property
    def deviation(self) -> Tensor:
        """Per episode, the standard deviation over the orders."""
        return self.scores.std(1, correction=0)


def by_label_order(
    learner: Learner,
    params: Params,
    buffers: Buffers,
    sampler: Sampler,
    loss: Loss,
    orders: Sequence[Tensor],
    episodes: int,
    plan: Plan | None = None,
    batch: int = 20,
) -> ByOrder:
    """Adapts to every episode once per order of its labels.

    Args:
        learner: how to adapt.
        params: meta-parameters.
        buffers: running statistics.
        sampler: held-out episodes ``0 … episodes − 1``, with labels.
        loss: decides the score.
        orders: from :func:`~innerloop.learners.orders.label_orders`.
        episodes: how many.
        plan: how to run them; a plain loop if omitted.
        batch: episodes at a time (no influence on the result).
    """
    views = [relabelled(learner, order) for order in orders]

    def one(params: Params, buffers: Buffers, task: Task) -> Tensor:
        """The scores of one task under every order, then under the mean of their probabilities."""
        adapted = [view.adapt(params, buffers, task.x_support, task.y_support) for view in views]
        outputs = [view.predict(a, task.x_query)[0] for view, a in zip(views, adapted, strict=True)]
        return torch.stack([score(loss, each, task.y_query) for each in (*outputs, mean_prediction(outputs))])

    mapped = map_tasks(one, (plan or Plan())._replace(compile="off"))
    parts = []
    with torch_threads(plan), torch.no_grad():
        for start in range(0, episodes, batch):
            indices = range(start, min(start + batch, episodes))
            parts.append(mapped(params, buffers, sampler.episodes(indices)).double())
    scores = torch.cat(parts)
    return ByOrder(scores[:, :-1], scores[:, -1])
