"""Trains a method on a mixture of easy and hard picture tasks and judges it on each (Landscape, §5)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop import Kind, Objective, Sampler, few_shot_sampler, maml, protonet
from innerloop.core import Buffers, Interval, Params, Task, TaskBatch, mean_interval
from innerloop.core.losses import accuracy, get_loss
from innerloop.core.random import derive_seed, hashed_uniform
from innerloop.core.trees import split_prefix
from innerloop.data.source import ImageSource, labels
from innerloop.experiment import Parts, make_recipe
from innerloop.experiment.data import Sizes, build_data
from innerloop.experiment.fitting import fit_parts
from innerloop.experiment.model import build_model
from innerloop.learners.objectives.multitask import PREFIX
from innerloop.nets.network import Network
from innerloop.tasks.loading import image_loader
from innerloop.training.execution.plan import Plan, torch_threads
from innerloop_studies.papers.training import by_frozen_features, one_by_one
from innerloop_studies.reproduce.rows import Row, Say, same_row

INNER_RATE = 0.1
SGD = {"MAML": ("sgd", 1e-3), "NAL": ("sgd", 1e-6)}
"""Outer optimisers and rates as published: tuned in 1e-2 to 1e-6. At NAL's rate the network hardly moves."""
ADAM = {method: ("adam", rate) for method, (_, rate) in SGD.items()}
BASELINE = ("adam", 1e-3)  # of MTL, ProtoNet and RFS, which the paper has not


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
    training: tuple[str, float] | None,
) -> dict[str, float]:
    """Accuracy in percent on every kind of ``judged``, untrained without ``training``; same tasks for all."""
    parts = parts_of(method, *train, budget, seed, training or BASELINE)
    state = parts if training is None else fit_parts(parts, plan=one_by_one(budget.steps))
    weights = state.params, state.buffers
    with torch_threads(Plan("loop")):
        return {
            name: judge(method, parts.network, weights, *one, budget, derive_seed(seed, "judge", name))
            for name, one in judged.items()
        }


def judge(
    method: str, net: Network, weights: Any, source: ImageSource, kind: Kind, budget: Budget, seed: int
) -> float:
    """Mean accuracy over episodes of one kind, in percent; ``weights``: parameters and buffers."""
    sampler, ways = few_shot_sampler(source, "all", seed=seed, kinds=[kind]), kind.ways
    params, buffers = split_prefix(weights[0], PREFIX)[1], weights[1]
    steps = budget.test_steps if method == "NAL" else 1
    loss = get_loss("cross-entropy")
    learner = protonet(net, ways) if method == "ProtoNet" else maml(net, loss, INNER_RATE, steps)

    def score(task: Task) -> float:
        if method in ("MTL", "RFS"):
            with torch.no_grad():
                return float(accuracy(by_frozen_features(net, params, buffers, task, ways), task.y_query))
        adapted = learner.adapt(params, buffers, task.x_support, task.y_support)
        with torch.no_grad():
            outputs, _ = learner.predict(adapted, task.x_query)
        return float(accuracy(outputs[:, :ways], task.y_query))

    return 100 * mean_interval([score(sampler.episode(i)) for i in range(budget.episodes)]).mean


def parts_of(
    method: str, source: ImageSource, kinds: Sequence[Kind], budget: Budget, seed: int, training: Any
) -> Parts:
    """How and on what a method trains: tasks of all classes, of the given kinds; RFS one minibatch a step."""
    _, height, width, channels = source.images.shape
    ways = max(kind.ways for kind in kinds)
    objective = {"NAL": "erm", "RFS": "erm", "MTL": "multitask"}.get(method, "episodic")
    learner = "protonet" if method == "ProtoNet" else "maml"
    outer = {"objective": objective, "steps": budget.steps, "batch": 1 if method == "RFS" else budget.tasks}
    sections: dict[str, Any] = {
        "tasks": {"family": "few-shot", "ways": ways},
        "model": {"kind": "conv4", "filters": budget.filters, "pooling": budget.pooling},
        "inner": {"method": learner, "lr": INNER_RATE, "loss": "cross-entropy"},
        "outer": {**outer, "optimiser": training[0], "lr": training[1]},
        "run": {"seed": seed},
    }
    recipe = make_recipe(sections)
    sizes = Sizes((channels, height, width), ways, ways, source.n_classes, labels=True)
    if method == "RFS":
        model = build_model(recipe, sizes)
        model = model._replace(objective=supervised(model.network, source.n_classes))
        return Parts(recipe, build_data(recipe, source, minibatches(source, kinds, seed)), sizes, model)
    sampler = few_shot_sampler(source, "all", seed=seed, kinds=kinds)
    return Parts(recipe, build_data(recipe, source, sampler), sizes)


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


JUDGED = ("train easy", "train hard", "test easy", "test hard")
SEEDS = {"smoke": 1, "cpu": 3, "paper": 5}
STEPS, TASKS = 20_000, 8  # of the paper's trainings

Accuracies = Mapping[str, Mapping[str, Interval]]  # in percent, by name of the arm and kind of tasks


def over_seeds(
    jobs: Sequence[Mapping[str, Any]], name: Callable[[Any], str], values: Iterable[Any], say: Say
) -> Accuracies:
    """Accuracies of training runs by name, as intervals over seeds."""
    by_name: dict[str, list[dict[str, float]]] = {}
    for job, by_kind in zip(jobs, values, strict=True):
        by_name.setdefault(name(job), []).append(by_kind)
        shown = ", ".join(f"{kind} {value:.1f}" for kind, value in by_kind.items())
        say(f"{name(job)}, seed {job['seed']}: {shown}")
    table = {}
    for arm, runs in by_name.items():
        table[arm] = kinds = {kind: mean_interval([run[kind] for run in runs]) for kind in runs[0]}
        spread = {part: f" ± {v.ci95:.1f}" if v.n > 1 else "" for part, v in kinds.items()}
        say(f"{arm}: " + ", ".join(f"{part} {v.mean:.1f}{spread[part]}" for part, v in kinds.items()))
    return table


def plain_accuracies(accuracies: Accuracies) -> dict[str, Any]:
    """The same as plain data."""
    return {name: {kind: v._asdict() for kind, v in kinds.items()} for name, kinds in accuracies.items()}


def alike_row(what: str, one: Mapping[str, float], other: Mapping[str, float]) -> Row:
    """Of methods before training."""
    pairs = [(one[part], other[part]) for part in JUDGED]
    return same_row(what, pairs, "the same weights and the same step, judged on the same tasks")
