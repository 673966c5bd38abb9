"""What needs no training, on the very tasks that the race was decided on."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.advisor.problem import Problem
from innerloop.advisor.result import Row
from innerloop.core.statistics import mean_interval
from innerloop.core.types import TaskBatch
from innerloop.evaluation.baselines import WORDS, colours, fixed_features, pixels
from innerloop.execution.plan import Plan
from innerloop.experiment.data import Data, build_data
from innerloop.experiment.fitting import by_heads
from innerloop.experiment.heads import head_protocol
from innerloop.experiment.parts import Parts
from innerloop.experiment.weights import for_test
from innerloop.pilot.trials import on_pilot_tasks
from innerloop.recipes.schema import Recipe

SPLIT = "validation"


class Ground(NamedTuple):
    """The tasks of the last judgement: the recipe that draws them, its data, how many, and how to run it."""

    recipe: Recipe
    data: Data
    episodes: int
    plan: Plan


def ground_of(problem: Problem, episodes: int, seed: int, threads: int) -> Ground:
    """The tasks that the last methods are judged on.

    Args:
        problem: what is raced on what.
        episodes: how many tasks.
        seed: of the trials that were judged on them.
        threads: of torch.
    """
    recipe = problem.entrants[0].recipe
    if problem.queries is not None:
        judged = recipe.eval.model_copy(update={"queries": problem.queries})
        recipe = recipe.model_copy(update={"eval": judged})
    recipe = on_pilot_tasks(recipe, seed)
    return Ground(recipe, build_data(recipe), episodes, Plan("loop", threads))


def untrained_rows(problem: Problem, ground: Ground) -> list[Row]:
    """Trivial baselines: for pictures pixels, colours and untrained features; for numbers their mean."""
    if problem.asked.kind == "pictures":
        return [*_of_pictures(ground), _untrained_network(problem, ground)]
    if problem.score == "mse":
        return _means(ground)
    return []


def _of_pictures(ground: Ground) -> list[Row]:
    protocol = head_protocol(ground.recipe, "none", ground.episodes)._replace(
        head="centroid", normalise=False, copies=0, grid=(), ensemble=False
    )
    judged = by_heads(ground.recipe, ground.data, ground.plan, SPLIT)
    nothing = {"none": torch.zeros(1)}
    return [
        _row(name, judged(fixed_features(of), nothing, {}, protocol=protocol).scores)
        for name, of in (("pixels", pixels), ("colours", colours))
    ]


def _untrained_network(problem: Problem, ground: Ground) -> Row:
    """The nearest class mean of the features of a network as it is drawn."""
    parts = Parts(problem.entrants[0].recipe, ground.data)
    network, (params, buffers) = parts.network, for_test(parts.params, parts.buffers)
    protocol = head_protocol(ground.recipe, network.norm, ground.episodes)._replace(
        head="centroid", normalise=True, copies=0, grid=(), ensemble=False
    )
    judged = by_heads(ground.recipe, ground.data, ground.plan, SPLIT)
    scale = ground.data.scale._asdict()
    return _row("untrained", judged(network, params, buffers, protocol=protocol, **scale).scores)


def _row(name: str, scores: list[float]) -> Row:
    return Row(name, WORDS[name], "untrained", mean_interval(scores), len(scores), True, scores=tuple(scores))


def _means(ground: Ground) -> list[Row]:
    """The mean of a task's own support targets, and the mean over training tasks."""
    batch = ground.data.validation.episodes(range(ground.episodes))
    train = ground.data.train.episodes(range(ground.episodes))
    if not isinstance(batch, TaskBatch) or not isinstance(train, TaskBatch):
        return []
    everywhere = torch.cat([train.y_support, train.y_query], 1).mean((0, 1))
    guesses = {
        "task mean": ("the mean of a task's support targets", batch.y_support.mean(1, keepdim=True)),
        "mean": ("the mean over training tasks", everywhere.expand_as(batch.y_query[:, :1])),
    }
    return [
        Row(name, words, "untrained", mean_interval(errors), len(errors), True, scores=tuple(errors))
        for name, (words, guess) in guesses.items()
        for errors in [_squared(batch.y_query, guess)]
    ]


def _squared(truth: Tensor, guess: Tensor) -> list[float]:
    return [float(v) for v in (truth - guess).square().flatten(1).mean(1).double()]
