"""What stands beside a race on the same fresh tasks: pretrained networks, and what needs no training."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from innerloop.choose.advice import Row
from innerloop.choose.problem import AdviceProblem
from innerloop.choose.trials import pool_tasks, with_pilot_tasks
from innerloop.classify.backbone_evaluation import evaluate_backbone
from innerloop.classify.backbones import Backbone, open_backbone
from innerloop.classify.features import extract
from innerloop.core.errors import UserError
from innerloop.core.random import derive_seed
from innerloop.core.statistics import mean_interval
from innerloop.core.types import Buffers, Params, TaskBatch
from innerloop.data.source import ImageSource, classes_of, only_rows
from innerloop.evaluation.baselines import WORDS, colours, fixed_features, pixels
from innerloop.experiment.data import Data, build_data
from innerloop.experiment.fitting import by_heads
from innerloop.experiment.parts import Parts
from innerloop.experiment.picture_record import own_folder
from innerloop.experiment.pictures import build_kinds
from innerloop.experiment.protocol import head_protocol
from innerloop.experiment.recipe.picture_fit import with_settings
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.weights import for_test
from innerloop.nets.network import Network
from innerloop.nets.pretrained import PRETRAINED, is_installed, overlap
from innerloop.tasks.few_shot import few_shot
from innerloop.training.execution.plan import Plan

SPLIT = "validation"


class FreshTasks(NamedTuple):
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
        return pool_tasks(self.whole, self.pool) if self.pool else self.whole


def ground_of(problem: AdviceProblem, episodes: int, seed: int, threads: int) -> FreshTasks:
    """The tasks that the last methods are judged on."""
    recipe = problem.entrants[0].recipe
    if problem.queries is not None:
        recipe = with_settings(recipe, {"eval": {"queries": problem.queries}})
    recipe = with_pilot_tasks(recipe, seed)
    return FreshTasks(recipe, episodes, Plan("loop", threads))


def untrained_baselines(problem: AdviceProblem) -> dict[str, Callable[[AdviceProblem, FreshTasks], Row]]:
    """Trivial baselines by name: for pictures pixels, colours and untrained features; for numbers means."""
    if problem.asked.kind == "pictures":
        fixed = {"pixels": partial(_of_pictures, "pixels"), "colours": partial(_of_pictures, "colours")}
        return {**fixed, "untrained": _untrained_network}
    if problem.score == "mse":
        return {name: partial(_mean, name) for name in ("task mean", "mean")}
    return {}


def _of_pictures(name: str, _: AdviceProblem, ground: FreshTasks) -> Row:
    of = {"pixels": pixels, "colours": colours}[name]
    return _by_centroids(name, ground, (fixed_features(of), {"none": torch.zeros(1)}, {}), normalise=False)


def _untrained_network(problem: AdviceProblem, ground: FreshTasks) -> Row:
    """The features of a network as it is drawn."""
    parts = Parts(problem.entrants[0].recipe, ground.whole)
    weights = for_test(parts.params, parts.buffers)
    scale = parts.data.scale._asdict()
    return _by_centroids("untrained", ground, (parts.network, *weights), normalise=True, **scale)


def _by_centroids(
    name: str, ground: FreshTasks, of: tuple[Network, Params, Buffers], *, normalise: bool, **scale: Any
) -> Row:
    """The nearest class mean of some features."""
    protocol = head_protocol(ground.recipe, of[0].norm, ground.episodes)._replace(
        head="centroid", normalise=normalise, copies=0, grid=(), ensemble=False
    )
    judged = by_heads(ground.recipe, ground.data, ground.plan, SPLIT)
    return _row(name, judged(*of, protocol=protocol, **scale).scores)


def _row(name: str, scores: list[float]) -> Row:
    return Row(name, WORDS[name], "untrained", mean_interval(scores), len(scores), True, scores=tuple(scores))


def _mean(name: str, _: AdviceProblem, ground: FreshTasks) -> Row:
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


HEAD = "logistic"
BATCH = 8
"""Pictures between two looks at the clock, for every core."""
MOST = 500
"""Pictures of a pool at most: those of twenty 5-way tasks of 5 shots and 15 queries, if none came twice."""


def installed_backbone() -> str | None:
    """A pretrained network whose weights are on this machine; the first of them, which is the fastest."""
    return next((name for name in PRETRAINED if is_installed(name)), None)


def pool_order(recipe: Recipe, source: ImageSource) -> list[int]:
    """Validation pictures in the order in which they are looked at: what a task asks of a class at a time."""
    each = _of_a_class(recipe)
    generator = np.random.default_rng(derive_seed(recipe.eval.seed, "pool"))
    classes = [
        generator.permutation(np.arange(source.starts[c], source.starts[c + 1])).tolist()
        for c in generator.permutation(classes_of(source, SPLIT))
    ]
    blocks = range(0, max(map(len, classes)), each)
    return [row for start in blocks for rows in classes for row in rows[start : start + each]]


def _of_a_class(recipe: Recipe) -> int:
    """Pictures that tasks ask of a class."""
    return max(kind.shots + kind.queries for kind in build_kinds(recipe, training=False))


def task_pictures(recipe: Recipe, source: ImageSource, rows: Sequence[int]) -> tuple[int, ...]:
    """Those of some pictures that tasks can be drawn from; none where they do not suffice for a task."""
    classes = (np.searchsorted(source.starts, np.array(rows, np.int64), "right") - 1).tolist()
    enough, counts = _of_a_class(recipe), Counter(classes)
    kept = tuple(row for row, of in zip(rows, classes, strict=True) if counts[of] >= enough)
    kinds = tuple(build_kinds(recipe, training=False))
    try:
        few_shot(only_rows(source, kept, SPLIT), SPLIT, recipe.eval.seed, kinds, recipe.tasks.balanced)
    except UserError:
        return ()
    return kept


def affordable_pictures(
    backbone: Backbone, ground: FreshTasks, source: ImageSource, share: float, left: Callable[[], float]
) -> tuple[int, ...]:
    """Pictures whose features were computed, or kept before, within a share of the time; empty if too few."""
    compute, end = partial(extract, backbone, threads=ground.plan.threads), left() - share
    rows: list[int] = []
    step = BATCH * ground.plan.threads
    for start in range(0, len(ground.pool), step):
        if left() <= 0 or (left() <= end and task_pictures(ground.recipe, source, rows)):
            break
        some = ground.pool[start : start + step]
        compute(list(_items(source, ground.recipe, some)))
        rows += some
    return task_pictures(ground.recipe, source, rows)


def _items(source: ImageSource, recipe: Recipe, rows: Sequence[int]) -> Iterator[Any]:
    """Files in the size that they have, where the pictures are files."""
    folder = _folder(recipe)
    return (source.images[row] if folder is None else folder / source.files(row) for row in rows)


def _folder(recipe: Recipe) -> Any:
    return None if recipe.data.rotations else own_folder(recipe.data.name)


def evaluate_pretrained(
    problem: AdviceProblem, ground: FreshTasks, name: str, share: float, left: Callable[[], float]
) -> tuple[FreshTasks, Row | None]:
    """A pretrained network with a logistic head on tasks of as many pictures as the time allows."""
    started, backbone, source = time.perf_counter(), open_backbone(name), ground.whole.pictures
    rows = affordable_pictures(backbone, ground, source, share, left)
    if not rows:
        return ground, None
    ground = ground._replace(pool=rows)
    protocol = head_protocol(ground.recipe, backbone.network.norm, ground.episodes)._replace(
        head=HEAD, C=1.0, normalise=True, copies=0, grid=(), ensemble=False
    )
    judged = evaluate_backbone(
        backbone,
        ground.data.pictures,
        protocol,
        SPLIT,
        folder=_folder(ground.recipe),
        kinds=build_kinds(ground.recipe, training=False),
        balanced=ground.recipe.tasks.balanced,
        plan=ground.plan,
    )
    return ground, Row(
        name,
        f"{name} with a logistic head",
        "pretrained",
        judged.interval,
        ground.episodes,
        fresh=True,
        seconds=time.perf_counter() - started,
        parameters=sum(value.numel() for value in backbone.params.values()),
        note=overlap(backbone.seen, problem.recipe.data.name) or "",
        scores=tuple(judged.scores),
    )
