"""What needs no training, on the very tasks that the race is decided on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.choose.advisor.problem import Problem
from innerloop.choose.advisor.result import Row
from innerloop.choose.pilot.trials import on_pilot_tasks, pooled
from innerloop.core.errors import UserError
from innerloop.core.statistics import mean_interval
from innerloop.core.types import TaskBatch
from innerloop.evaluation.baselines import WORDS, colours, fixed_features, pixels
from innerloop.experiment.data import Data, build_data
from innerloop.experiment.fitting import by_heads
from innerloop.experiment.heads import head_protocol
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.weights import for_test
from innerloop.training.execution.plan import Plan

SPLIT = "validation"


class Ground(NamedTuple):
    """The tasks of the last evaluation."""

    recipe: Recipe
    episodes: int
    plan: Plan
    pool: tuple[int, ...] = ()

    @property
    def whole(self) -> Data:
        """All that the recipe means."""
        return build_data(self.recipe)

    @property
    def data(self) -> Data:
        """Tasks of the pool."""
        return pooled(self.whole, self.pool) if self.pool else self.whole


def ground_of(problem: Problem, episodes: int, seed: int, threads: int) -> Ground:
    """The tasks that the last methods are judged on."""
    recipe = problem.entrants[0].recipe
    if problem.queries is not None:
        judged = recipe.eval.model_copy(update={"queries": problem.queries})
        recipe = recipe.model_copy(update={"eval": judged})
    recipe = on_pilot_tasks(recipe, seed)
    return Ground(recipe, episodes, Plan("loop", threads))


def untrained(problem: Problem) -> dict[str, Callable[[Problem, Ground], Row]]:
    """Trivial baselines by name: for pictures pixels, colours and untrained features; for numbers means."""
    if problem.asked.kind == "pictures":
        fixed = {"pixels": partial(_of_pictures, "pixels"), "colours": partial(_of_pictures, "colours")}
        return {**fixed, "untrained": _untrained_network}
    if problem.score == "mse":
        return {name: partial(_mean, name) for name in ("task mean", "mean")}
    return {}


def _of_pictures(name: str, _: Problem, ground: Ground) -> Row:
    protocol = head_protocol(ground.recipe, "none", ground.episodes)._replace(
        head="centroid", normalise=False, copies=0, grid=(), ensemble=False
    )
    judged = by_heads(ground.recipe, ground.data, ground.plan, SPLIT)
    of = {"pixels": pixels, "colours": colours}[name]
    return _row(name, judged(fixed_features(of), {"none": torch.zeros(1)}, {}, protocol=protocol).scores)


def _untrained_network(problem: Problem, ground: Ground) -> Row:
    """The nearest class mean of the features of a network as it is drawn."""
    parts = Parts(problem.entrants[0].recipe, ground.whole)
    network, (params, buffers) = parts.network, for_test(parts.params, parts.buffers)
    protocol = head_protocol(ground.recipe, network.norm, ground.episodes)._replace(
        head="centroid", normalise=True, copies=0, grid=(), ensemble=False
    )
    judged = by_heads(ground.recipe, ground.data, ground.plan, SPLIT)
    scale = parts.data.scale._asdict()
    return _row("untrained", judged(network, params, buffers, protocol=protocol, **scale).scores)


def _row(name: str, scores: list[float]) -> Row:
    return Row(name, WORDS[name], "untrained", mean_interval(scores), len(scores), True, scores=tuple(scores))


def _mean(name: str, _: Problem, ground: Ground) -> Row:
    """The mean of a task's own support targets, or the mean over training tasks."""
    batch = ground.whole.validation.episodes(range(ground.episodes))
    train = ground.whole.train.episodes(range(ground.episodes))
    if not isinstance(batch, TaskBatch) or not isinstance(train, TaskBatch):
        raise UserError("tasks of unequal shapes have no mean here.")
    everywhere = torch.cat([train.y_support, train.y_query], 1).mean((0, 1))
    words, guess = {
        "task mean": ("the mean of a task's support targets", batch.y_support.mean(1, keepdim=True)),
        "mean": ("the mean over training tasks", everywhere.expand_as(batch.y_query[:, :1])),
    }[name]
    errors = _squared(batch.y_query, guess)
    return Row(name, words, "untrained", mean_interval(errors), len(errors), True, scores=tuple(errors))


def _squared(truth: Tensor, guess: Tensor) -> list[float]:
    return [float(v) for v in (truth - guess).square().flatten(1).mean(1).double()]
