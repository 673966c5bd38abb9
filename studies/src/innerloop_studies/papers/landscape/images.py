"""Trains a method on a mixture of easy and hard picture tasks and judges it on each (Landscape, §5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from innerloop.core.statistics import mean_interval

if TYPE_CHECKING:
    from innerloop.core.types import Buffers, Params, Task
    from innerloop.data.source import ImageSource
    from innerloop.experiment.parts import Parts
    from innerloop.experiment.recipe.schema import Recipe
    from innerloop.nets.network import Network
    from innerloop.tasks.few_shot import Kind

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
    from innerloop.experiment.fitting import fit_parts
    from innerloop.training.execution.plan import Plan

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
    from innerloop.core.random import derive_seed
    from innerloop.training.execution.plan import Plan, torch_threads

    with torch_threads(Plan("loop")):
        return {
            name: judge(method, net, *weights, *one, budget, derive_seed(seed, "judge", name))
            for name, one in judged.items()
        }


def recipe_of(method: str, ways: int, budget: Budget, seed: int, training: Training) -> Recipe:
    """How a method trains. RFS takes one minibatch a step."""
    from innerloop.experiment.recipe.settings import make_recipe

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
    from innerloop.experiment.data import build_data
    from innerloop.experiment.model import build_model
    from innerloop.experiment.parts import Parts
    from innerloop.experiment.sizes import Sizes
    from innerloop.tasks.few_shot import few_shot_sampler
    from innerloop_studies.papers.landscape.rfs import minibatches, supervised

    _, height, width, channels = source.images.shape
    ways = max(kind.shape.ways for kind in kinds)
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
    import torch

    from innerloop.core.losses import accuracy, get_loss
    from innerloop.core.trees import split_prefix
    from innerloop.learners.gradient import maml
    from innerloop.learners.metric import protonet
    from innerloop.learners.objectives.multitask import PREFIX
    from innerloop.tasks.few_shot import few_shot_sampler
    from innerloop_studies.papers.landscape.rfs import by_head

    sampler = few_shot_sampler(source, "all", seed=seed, kinds=[kind])
    params = split_prefix(params, PREFIX)[1]
    loss = get_loss("cross-entropy")
    steps = budget.test_steps if method == "NAL" else 1
    learner = protonet(net, kind.shape.ways) if method == "ProtoNet" else maml(net, loss, INNER_RATE, steps)

    def score(task: Task) -> float:
        """The accuracy on one task."""
        if method in ("MTL", "RFS"):
            return by_head(net, params, buffers, task, kind.shape.ways)
        adapted = learner.adapt(params, buffers, task.x_support, task.y_support)
        with torch.no_grad():
            outputs, _ = learner.predict(adapted, task.x_query)
        return float(accuracy(outputs[:, : kind.shape.ways], task.y_query))

    return 100 * mean_interval([score(sampler.episode(i)) for i in range(budget.episodes)]).mean
