"""The runs behind ``advice-hardness``: how hard groups of classes are for raw pixels, and after training.

They stand apart from the rows that are made of them, so that finished runs outlive a change of words there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from innerloop.choose.estimates import GROUP_EPISODES
from innerloop.core.random import derive_seed
from innerloop.data.source import ImageSource
from innerloop.evaluation.scores import evaluate
from innerloop.experiment.data import build_data
from innerloop.experiment.fitting import fit_parts
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.tasks.episodes import Shape
from innerloop.tasks.few_shot import Kind, few_shot_sampler
from innerloop.tasks.hard_groups import group_errors, groups_of
from innerloop.training.execution.plan import Plan

WAYS, QUERIES = 5, 5
METHODS: dict[str, dict[str, Any]] = {
    "protonet": {"model": {"norm": "running"}, "inner": {"method": "protonet"}, "outer": {"lr": 3e-3}},
    "maml": {
        "model": {"norm": "transductive"},
        "inner": {"method": "maml", "lr": 0.3, "steps": 1},
        "outer": {"lr": 2e-3},
    },
}


class Budget(NamedTuple):
    """Meta-steps, filters, and test tasks within every group."""

    steps: int
    filters: int
    episodes: int


def recipe_of(data: str, method: str, budget: Budget, seed: int) -> Recipe:
    """Training on any classes of the training groups, 5-way 1-shot."""
    own = METHODS[method]
    outer = {"steps": budget.steps, "batch": 2, "schedule": "cosine", "clip": 10.0}
    model = {"kind": "conv4", "filters": budget.filters, "pooling": "stride"}
    return make_recipe(
        {
            "name": "advice-hardness",
            "data": {"name": data, "standardise": True},
            "tasks": {"family": "few-shot", "ways": WAYS, "shots": 1, "queries": QUERIES},
            "model": {**model, **own["model"]},
            "inner": {**own["inner"], "loss": "cross-entropy"},
            "outer": {**outer, **own["outer"]},
            "run": {"seed": seed},
        }
    )


def without_half(source: ImageSource, fold: int) -> ImageSource:
    """The pictures with half of their groups to train on, the other half to test; fold 1 swaps them.

    Groups with fewer classes than a task needs are left out.
    """
    assert source.groups is not None
    members = [classes for classes in groups_of(source, "all").values() if len(classes) >= WAYS]
    order = torch.randperm(len(members), generator=torch.Generator().manual_seed(0)).tolist()
    half = len(members) // 2
    parts = [order[:half], order[half:]]
    classes = [np.sort(np.concatenate([members[i] for i in part])) for part in parts]
    train, test = classes if fold == 0 else classes[::-1]
    return source._replace(splits={"train": train, "validation": test, "test": test})


class Errors(NamedTuple):
    """Errors within groups, by their names."""

    before: dict[str, float]
    trained: dict[str, float]


def errors_of(data: str, method: str, fold: int, seed: int, budget: Budget) -> Errors:
    """Errors within every group that was not trained on: of raw pixels before training, and of a network."""
    recipe = recipe_of(data, method, budget, seed)
    pictures = without_half(build_data(recipe).pictures, fold)
    parts, plan = Parts(recipe, build_data(recipe, pictures)), Plan("loop")
    state, scale = fit_parts(parts, plan=plan), parts.data.scale
    learner, trained = parts.learner_after(1), dict[str, float]()
    before = group_errors(pictures, "test", WAYS, GROUP_EPISODES)
    for name in before:
        kind = Kind(Shape(WAYS, 1, QUERIES), "one-group", (name,))
        seeded = derive_seed(seed, "advice-hardness", name)
        stream = few_shot_sampler(pictures, "test", seed=seeded, kinds=[kind], mean=scale.mean, std=scale.std)
        judged = evaluate(learner, state.params, state.buffers, stream, parts.loss, budget.episodes, plan)
        trained[name] = 1 - sum(judged.scores) / len(judged.scores)
    return Errors(before, trained)
