"""Trains a method on a mixture of easy and hard picture tasks and judges it on each (Landscape, §5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.losses import accuracy, get_loss
from innerloop.core.random import derive_seed, hashed_uniform
from innerloop.core.statistics import Interval, mean_interval
from innerloop.core.trees import split_prefix
from innerloop.core.types import Buffers, Params, Task, TaskBatch
from innerloop.data.source import ImageSource, labels
from innerloop.evaluation.heads import fit_heads, head_scores
from innerloop.experiment.data import build_data
from innerloop.experiment.fitting import fit_parts
from innerloop.experiment.model import build_model
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.experiment.sizes import Sizes
from innerloop.learners.gradient import maml
from innerloop.learners.metric import protonet
from innerloop.learners.objectives.base import Objective
from innerloop.learners.objectives.multitask import PREFIX
from innerloop.nets.network import Network
from innerloop.tasks.episodes import Kind
from innerloop.tasks.few_shot import few_shot_sampler
from innerloop.tasks.loading import image_loader
from innerloop.tasks.sampler import Sampler
from innerloop.training.execution.plan import Plan, torch_threads
from innerloop_studies.reproduce.rows import Say

INNER_RATE = 0.1


class Training(NamedTuple):
    """The outer optimiser and its rate."""

    optimiser: str
    rate: float


SGD = {"MAML": Training("sgd", 1e-3), "NAL": Training("sgd", 1e-6)}
"""As published: tuned in 1e-2 to 1e-6. At NAL's rate the network hardly moves."""
ADAM = {method: Training("adam", training.rate) for method, training in SGD.items()}
BASELINE = Training("adam", 1e-3)
"""Of MTL, ProtoNet and RFS, which the paper has not."""


class Budget(NamedTuple):
    """How much is trained and judged."""

    steps: int
    tasks: int
    filters: int
    pooling: str
    episodes: int
    test_steps: int = 1


def judge_all(
    method: str,
    train: tuple[ImageSource, Sequence[Kind]],
    judged: Mapping[str, tuple[ImageSource, Kind]],
    budget: Budget,
    seed: int,
    training: Training,
) -> dict[str, float]:
    """Accuracy in percent of one trained model on every kind of ``judged``."""
    parts = parts_of(method, *train, budget, seed, training)
    state = fit_parts(parts, plan=Plan("loop"))
    return judge_each(method, parts.network, (state.params, state.buffers), judged, budget, seed)


def judge_first(
    method: str,
    train: tuple[ImageSource, Sequence[Kind]],
    judged: Mapping[str, tuple[ImageSource, Kind]],
    budget: Budget,
    seed: int,
) -> dict[str, float]:
    """The same before the first step."""
    parts = parts_of(method, *train, budget, seed, BASELINE)
    return judge_each(method, parts.network, (parts.params, parts.buffers), judged, budget, seed)


def judge_each(
    method: str,
    net: Network,
    weights: tuple[Params, Buffers],
    judged: Mapping[str, tuple[ImageSource, Kind]],
    budget: Budget,
    seed: int,
) -> dict[str, float]:
    """Accuracy in percent on every kind of ``judged``; all methods meet the same tasks."""
    with torch_threads(Plan("loop")):
        return {
            name: judge(method, net, *weights, *one, budget, derive_seed(seed, "judge", name))
            for name, one in judged.items()
        }


def recipe_of(method: str, ways: int, budget: Budget, seed: int, training: Training) -> Recipe:
    """How a method trains. RFS takes one minibatch a step."""
    objective = {"NAL": "erm", "RFS": "erm", "MTL": "multitask"}.get(method, "episodic")
    return make_recipe(
        {
            "tasks": {"family": "few-shot", "ways": ways},
            "model": {"kind": "conv4", "filters": budget.filters, "pooling": budget.pooling},
            "inner": {
                "method": "protonet" if method == "ProtoNet" else "maml",
                "lr": INNER_RATE,
                "loss": "cross-entropy",
            },
            "outer": {
                "objective": objective,
                "steps": budget.steps,
                "batch": 1 if method == "RFS" else budget.tasks,
                "optimiser": training.optimiser,
                "lr": training.rate,
            },
            "run": {"seed": seed},
        }
    )


def parts_of(
    method: str,
    source: ImageSource,
    kinds: Sequence[Kind],
    budget: Budget,
    seed: int,
    training: Training,
) -> Parts:
    """What a method trains on: tasks of all classes, of the given kinds."""
    _, height, width, channels = source.images.shape
    ways = max(kind.ways for kind in kinds)
    recipe = recipe_of(method, ways, budget, seed, training)
    sizes = Sizes((channels, height, width), ways, ways, source.n_classes, labels=True)
    if method == "RFS":
        model = build_model(recipe, sizes)
        model = model._replace(objective=supervised(model.network, source.n_classes))
        return Parts(recipe, build_data(recipe, source, minibatches(source, kinds, seed)), sizes, model)
    sampler = few_shot_sampler(source, "all", seed=seed, kinds=kinds)
    return Parts(recipe, build_data(recipe, source, sampler), sizes)


def judge(
    method: str,
    net: Network,
    params: Params,
    buffers: Buffers,
    source: ImageSource,
    kind: Kind,
    budget: Budget,
    seed: int,
) -> float:
    """Mean accuracy over episodes of one kind, in percent."""
    sampler = few_shot_sampler(source, "all", seed=seed, kinds=[kind])
    params = split_prefix(params, PREFIX)[1]
    loss = get_loss("cross-entropy")
    steps = budget.test_steps if method == "NAL" else 1
    learner = protonet(net, kind.ways) if method == "ProtoNet" else maml(net, loss, INNER_RATE, steps)

    def score(task: Task) -> float:
        if method in ("MTL", "RFS"):
            return by_head(net, params, buffers, task, kind.ways)
        adapted = learner.adapt(params, buffers, task.x_support, task.y_support)
        with torch.no_grad():
            outputs, _ = learner.predict(adapted, task.x_query)
        return float(accuracy(outputs[:, : kind.ways], task.y_query))

    return 100 * mean_interval([score(sampler.episode(i)) for i in range(budget.episodes)]).mean


BATCH = 64
CLASSES = "classes.weight"


def minibatches(source: ImageSource, kinds: Sequence[Kind], seed: int) -> Sampler:
    """Pictures of all training classes, drawn with replacement; their labels are class numbers."""
    number, load = labels(source), image_loader(source)
    rows = np.flatnonzero(np.isin(number, training_classes(source, kinds)))
    stream = derive_seed(seed, "minibatch")

    def episodes(indices: Sequence[int]) -> TaskBatch:
        index = np.asarray(indices, dtype=np.int64)
        picked = rows[(hashed_uniform(stream, index, BATCH) * len(rows)).astype(np.int64)]
        x, y = load(picked), torch.from_numpy(number[picked])
        return TaskBatch(x, y, x[:, :0], y[:, :0], torch.from_numpy(index))

    return Sampler(episodes, None, f"{source.name} minibatches")


def supervised(net: Network, classes: int) -> Objective:
    """One linear classifier of all classes on the body's features; the head is left alone."""

    def init(params: Params, generator: torch.Generator) -> Params:
        width = params[net.head_names[0]].shape[-1]
        return {**params, CLASSES: torch.randn(classes, width, generator=generator) / width**0.5}

    def loss(params: Params, buffers: Buffers, task: Task) -> tuple[Tensor, Buffers]:
        z, _ = net.features(params, buffers, task.x_support, "batch")
        return F.cross_entropy(z @ params[CLASSES].T, task.y_support), buffers

    return Objective("supervised", loss=loss, init=init, untrained=tuple(net.head_names))


def training_classes(source: ImageSource, kinds: Sequence[Kind]) -> Any:
    """Class numbers that any kind may draw from."""
    if source.groups is None or any(kind.groups is None for kind in kinds):
        return np.arange(source.n_classes)
    names = {name for kind in kinds for name in kind.groups or ()}
    wanted = [i for i, name in enumerate(source.group_names) if name in names]
    return np.flatnonzero(np.isin(source.groups, wanted))


def by_head(net: Network, params: Params, buffers: Buffers, task: Task, ways: int) -> float:
    """The accuracy of logistic regression on normalised features of the frozen body (C = 3), as in Bridge."""
    with torch.no_grad():
        z, q = (
            net.features(params, buffers, x, "batch")[0].flatten(1)[None].double()
            for x in (task.x_support, task.x_query)
        )
        fitted = fit_heads(z, task.y_support[None], ways, "logistic", 3.0, True)
        return float(accuracy(head_scores(fitted, q)[0], task.y_query))


Accuracies = Mapping[str, Mapping[str, Interval]]
"""In percent, by name of the arm and kind of tasks."""


def over_seeds(names: Sequence[str], values: Iterable[dict[str, float]], say: Say) -> Accuracies:
    """Accuracies of training runs by name, as intervals over seeds."""
    by_name: dict[str, list[dict[str, float]]] = {}
    for name, by_kind in zip(names, values, strict=True):
        by_name.setdefault(name, []).append(by_kind)
        shown = ", ".join(f"{kind} {value:.1f}" for kind, value in by_kind.items())
        say(f"{name}, seed {len(by_name[name]) - 1}: {shown}")
    return {
        name: {kind: mean_interval([run[kind] for run in runs]) for kind in runs[0]}
        for name, runs in by_name.items()
    }


def bar(interval: Interval) -> tuple[float, float]:
    """The value of a bar and the half-width of its interval, as they are drawn."""
    return interval.mean, interval.ci95


def plain_accuracies(accuracies: Accuracies) -> dict[str, Any]:
    """The same as plain data.

    >>> plain_accuracies({"MAML": {"test hard": Interval(50.0, 1.0, 3)}})
    {'MAML': {'test hard': {'mean': 50.0, 'ci95': 1.0, 'n': 3}}}
    """
    return {
        name: {kind: interval._asdict() for kind, interval in kinds.items()}
        for name, kinds in accuracies.items()
    }
