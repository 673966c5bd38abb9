"""The runs of AdaptLR's Figure 3: ANIL on Omniglot under several rules for its rate."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from innerloop.choose.rates import advice_for, provisional
from innerloop.core.errors import NonFiniteError
from innerloop.core.losses import score
from innerloop.core.statistics import Interval, mean_interval
from innerloop.core.types import Buffers, Params, Task
from innerloop.experiment.fitting import fit_parts
from innerloop.experiment.learner import test_steps
from innerloop.experiment.parts import Parts, build
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.experiment.weights import for_test
from innerloop.training.execution.plan import Plan
from innerloop.training.execution.tasks import map_tasks
from innerloop.training.loop import Validation
from innerloop_studies.reproduce.short_runs import plan_for

STEPS = {"smoke": 10, "cpu": 1000, "paper": 40_000}
JUDGED = {"smoke": 10, "cpu": 30, "paper": 100}


def recipe_for(inner: dict[str, Any], model: dict[str, Any], scale: str, seed: int) -> Recipe:
    """ANIL with five inner steps; at smoke scale five of the embedded glyphs stand in for Omniglot."""
    smoke = scale == "smoke"
    return make_recipe(
        {
            "name": "adaptlr-fig3",
            "data": {"name": "glyphs" if smoke else "omniglot", "rotations": True},
            "tasks": {
                "family": "few-shot",
                "ways": 5 if smoke else 20,
                "shots": 1,
                "queries": 2 if smoke else 5,
            },
            "model": {
                "kind": "conv4",
                "pooling": "stride",
                "filters": 64 if scale == "paper" else 32,
                **model,
            },
            "inner": {"method": "anil", "steps": 5, "test_steps": 5, "loss": "cross-entropy", **inner},
            "outer": {"steps": STEPS[scale], "batch": 16 if scale == "paper" else 2},
            "run": {"seed": seed},
        }
    )


def trained(
    inner: dict[str, Any], model: dict[str, Any], scale: str, seed: int, every: int
) -> dict[str, Any]:
    """Accuracy and loss on test tasks every so many steps, and the rate at the end."""
    recipe = recipe_for(inner, model, scale, seed)
    parts, plan = build(provisional(recipe)), plan_for(recipe)
    if recipe.inner.lr == "auto":
        parts = parts.at_rate(advice_for(parts).alpha)
    curve: list[dict[str, float]] = []
    losses: list[float] = []

    def validate(params: Params, buffers: Buffers) -> Interval:
        """Accuracy on test tasks; the loss is kept beside it."""
        interval, loss = accuracy_and_loss(parts, params, buffers, JUDGED[scale], plan)
        losses.append(loss)
        return interval

    def log(record: dict[str, Any]) -> None:
        """Keeps a point of the curve."""
        if "validation" in record:
            curve.append({"step": record["step"], "score": record["validation"], "loss": losses[-1]})

    try:
        buffers = fit_parts(parts, plan=plan, validation=Validation(validate, every, True), log=log).buffers
    except NonFiniteError:
        buffers = {}
    return {"curve": curve, "rate": float(buffers.get("online.rate", parts.recipe.inner.lr))}


def accuracy_and_loss(
    parts: Parts, params: Params, buffers: Buffers, episodes: int, plan: Plan
) -> tuple[Interval, float]:
    """On test tasks after the steps of the recipe, both from the same predictions."""
    learner = parts.learner_after(test_steps(parts.recipe))

    def one(params: Params, buffers: Buffers, task: Task) -> tuple[Tensor, Tensor]:
        """Accuracy and loss on one task."""
        adapted = learner.adapt(params, buffers, task.x_support, task.y_support)
        outputs, _ = learner.predict(adapted, task.x_query)
        return score(parts.loss, outputs, task.y_query), parts.loss.value(outputs, task.y_query)

    with torch.no_grad():
        right, losses = map_tasks(one, plan)(
            *for_test(params, buffers), parts.data.test.episodes(range(episodes))
        )
    return mean_interval(right.double().tolist()), float(losses.double().mean())
