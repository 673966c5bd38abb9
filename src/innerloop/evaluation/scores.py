"""Scores of a learner on held-out episodes. Builds no graph."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.losses import score, score_name
from innerloop.core.statistics import Interval, mean_interval
from innerloop.core.types import Buffers, Loss, Params, Task
from innerloop.evaluation.episodes import Episodes
from innerloop.learners.base import Learner
from innerloop.learners.orders import mean_prediction, relabelled
from innerloop.tasks.sampler import Sampler
from innerloop.training.execution.mapping import map_tasks
from innerloop.training.execution.plan import Plan, torch_threads
from innerloop.training.execution.ranks import ROUND, map_over_ranks


class EpisodePredictions(NamedTuple):
    """What was said of the queries of one episode, in their order.

    Attributes:
        episode: its number.
        labels: the true labels, which count within the episode.
        said: the labels that were given.
        probability: how probable these were called: the largest entry of a softmax of the outputs.
    """

    episode: int
    labels: list[int]
    said: list[int]
    probability: list[float]

    @property
    def accuracy(self) -> float:
        """The share of queries whose label is right."""
        return sum(a == b for a, b in zip(self.labels, self.said, strict=True)) / len(self.labels)


def marks(outputs: Tensor, labels: Tensor, widest: int | None = None) -> Tensor:
    """``(…, 3, widest)``: of every query its true label, the given one, how probable that is; else nan."""
    sure, said = outputs.float().softmax(-1).max(-1)
    table = torch.stack([labels.float(), said.float(), sure], -2)
    missing = 0 if widest is None else widest - labels.shape[-1]
    return F.pad(table, (0, missing), value=torch.nan) if missing else table


def read_marks(tables: Iterable[Tensor], episodes: Sequence[int]) -> list[EpisodePredictions]:
    """Reads the tables of :func:`marks`; an episode with outputs that are no numbers is left out."""
    given = []
    for table, episode in zip(tables, episodes, strict=True):
        labels, said, sure = table[:, table[0].isfinite()].tolist()
        if labels and all(p == p for p in sure):
            told = [round(p, 4) for p in sure]
            given.append(
                EpisodePredictions(int(episode), [int(i) for i in labels], [int(i) for i in said], told)
            )
    return given


class GridRow(NamedTuple):
    """Accuracy of a head under one setting; of the mean of probabilities over all where both are None."""

    C: float | None
    normalise: bool | None
    accuracy: Interval

    def as_dict(self) -> dict[str, Any]:
        """For files."""
        return {**self._asdict(), "accuracy": self.accuracy.mean, "ci95": self.accuracy.ci95}


class Evaluation(NamedTuple):
    """Per-episode scores, in episode order, and their mean with its interval.

    A score is nan where the predictions of the episode are not finite (a diverged inner loop, broken
    weights), for accuracies as for errors; the mean is then nan too: see :attr:`not_finite`.
    ``unconverged`` counts episodes whose head is not a proven solution (features that even float64 cannot
    tell apart from rounding): their scores are those of the best point reached. ``drawn`` says which episodes
    these are, where that is known: :func:`~innerloop.evaluation.comparison.compare` asks for the same.
    ``grid`` has a row for every setting of a head that was judged beside, and for their ensemble.
    ``predicted`` has what was said of single queries in the first episodes, where that was asked for.
    """

    scores: list[float]
    interval: Interval
    score: str
    unconverged: int = 0
    drawn: Episodes | None = None
    grid: tuple[GridRow, ...] = ()
    predicted: tuple[EpisodePredictions, ...] = ()

    @property
    def not_finite(self) -> int:
        """How many episodes have no finite score.

        >>> Evaluation([0.5, math.nan, math.inf], mean_interval([0.5, math.nan, math.inf]), "mse").not_finite
        2
        """
        return sum(not math.isfinite(value) for value in self.scores)


def evaluate(
    learner: Learner,
    params: Params,
    buffers: Buffers,
    sampler: Sampler,
    loss: Loss,
    episodes: int = 600,
    plan: Plan | None = None,
    batch: int = 100,
    keep: int = 0,
    widest: int = 0,
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
        keep: first episodes of which the labels that were given are kept, where there are labels.
        widest: queries of the largest of them.
    """

    def one(params: Params, buffers: Buffers, task: Task) -> tuple[Tensor, Tensor, Tensor]:
        """The score of one task, whether its head is a proven solution, and what was said of its queries."""
        adapted = learner.adapt(params, buffers, task.x_support, task.y_support)
        outputs, _ = learner.predict(adapted, task.x_query)
        proven = learner.converged(adapted) if learner.converged else outputs.new_ones((), dtype=torch.bool)
        told = marks(outputs, task.y_query, widest) if keep else outputs.new_zeros(0)
        return score(loss, outputs, task.y_query), proven, told

    given, plan = plan, (plan or Plan())._replace(compile="off")  # it is short, and its shapes vary
    mapped = map_tasks(one, plan)
    if plan.ranks > 1 and plan.mode != "vmap":  # under vmap, last bits may depend on how many are batched
        batch = max(1, min(batch, math.ceil(episodes / (8 * plan.ranks))))
    spans = [range(start, min(start + batch, episodes)) for start in range(0, episodes, batch)]

    def judged(span: range) -> tuple[Tensor, ...]:
        """The scores of a batch, how many of its heads have not converged, and the labels that are kept."""
        scores, proven, told = mapped(params, buffers, sampler.episodes(span))
        kept = max(0, min(keep - span[0], len(span)))
        return scores.double(), (~proven).sum(), told[:kept].cpu().clone()  # a view would keep all of them

    scores, unconverged, tables = list[float](), 0, list[Tensor]()
    at_once = ROUND * plan.ranks  # small tensors that stay would keep the memory between them from being used
    with torch_threads(given), torch.no_grad():
        for start in range(0, len(spans), at_once):
            some = spans[start : start + at_once]
            for part, count, told in map_over_ranks(
                lambda few: [judged(span) for span in few], some, plan.ranks
            ):
                scores += part.tolist()
                unconverged += int(count)
                tables += list(told)
    said = tuple(read_marks(tables, range(len(tables))))
    return Evaluation(scores, mean_interval(scores), score_name(loss), unconverged, predicted=said)


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
