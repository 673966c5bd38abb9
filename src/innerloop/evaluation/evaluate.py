"""Scores of a learner on held-out episodes. Builds no graph."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.losses import score, score_name
from innerloop.core.statistics import Interval, mean_interval
from innerloop.core.types import Buffers, Loss, Params, Task
from innerloop.execution import Plan, map_tasks
from innerloop.learners.base import Learner
from innerloop.tasks.sampler import Sampler


class Evaluation(NamedTuple):
    """Per-episode scores, in episode order, and their mean with its interval.

    ``unconverged`` counts episodes whose head is not a proven solution (features that even float64
    cannot tell apart from rounding): their scores are those of the best point reached.
    """

    scores: list[float]
    interval: Interval
    score: str
    unconverged: int = 0


def evaluate(
    learner: Learner,
    params: Params,
    buffers: Buffers,
    sampler: Sampler,
    loss: Loss,
    episodes: int = 600,
    plan: Plan | None = None,
    batch: int = 100,
) -> Evaluation:
    """Adapts to each episode's support set and scores the predictions on its query set.

    Args:
        learner: how to adapt.
        params: meta-parameters.
        buffers: running statistics.
        sampler: held-out episodes ``0 … episodes − 1``.
        loss: decides the score: accuracy for labels, mean squared error otherwise.
        episodes: how many.
        plan: how to run them; a plain loop if omitted.
        batch: episodes at a time (no influence on the result).
    """

    def one(params: Params, buffers: Buffers, task: Task) -> Tensor:
        adapted = learner.adapt(params, buffers, task.x_support, task.y_support)
        outputs, _ = learner.predict(adapted, task.x_query)
        return score(loss, outputs, task.y_query)

    # compiling is for training: evaluation is short and its shapes vary
    mapped = map_tasks(one, (plan or Plan())._replace(compile="off"))
    scores: list[float] = []
    with torch.no_grad():
        for start in range(0, episodes, batch):
            indices = range(start, min(start + batch, episodes))
            scores += mapped(params, buffers, sampler.episodes(indices)).double().tolist()
    return Evaluation(scores, mean_interval(scores), score_name(loss))
