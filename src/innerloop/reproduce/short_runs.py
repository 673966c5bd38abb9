"""Short training runs inside a reproduction: no run directory, scores on held-out tasks."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from innerloop.core.errors import NonFiniteError
from innerloop.core.losses import is_classification
from innerloop.core.statistics import Interval
from innerloop.evaluation import evaluate
from innerloop.execution import Plan
from innerloop.execution.plan import set_intra_op_threads
from innerloop.experiment.build import Parts, build, for_test
from innerloop.experiment.learner import build_learner
from innerloop.experiment.pictures import IMAGE_FAMILIES, largest_ways
from innerloop.experiment.rate import advice_for, provisional, with_rate
from innerloop.recipes.schema import Recipe
from innerloop.training import TrainState, fit, initial_state
from innerloop.training.fit import Validation


class Fitted(NamedTuple):
    """A trained state with the recipe (its rate a number) and parts behind it, and validation on the way.

    ``state`` is None if a loss or the weights were not finite.
    """

    recipe: Recipe
    parts: Parts
    state: TrainState | None
    curve: list[dict[str, float]]


def plan_for(recipe: Recipe) -> Plan:
    """Small regressions under vmap, pictures one task at a time; ``run.threads`` threads."""
    pictures = recipe.tasks.family in IMAGE_FAMILIES
    threads = recipe.run.threads or 1
    return Plan("threads" if threads > 1 else "loop", threads) if pictures else Plan("vmap", threads)


def fitted(recipe: Recipe, every: int = 0) -> Fitted:
    """Trains a recipe; ``inner.lr=auto`` takes the point of its advice; ``every`` steps it validates."""
    if recipe.inner.lr == "auto":
        recipe = with_rate(recipe, advice_for(recipe, build(provisional(recipe))).alpha)
    parts, plan = build(recipe), plan_for(recipe)
    set_intra_op_threads(plan)
    curve: list[dict[str, float]] = []

    def score(params: Any, buffers: Any) -> Interval:
        return judged(Fitted(recipe, parts, initial_state(params, buffers), []), "validation")

    def log(record: dict[str, Any]) -> None:
        if "validation" in record:
            curve.append({"step": record["step"], "score": record["validation"], "ci95": record["ci95"]})

    better = is_classification(parts.loss)
    try:
        state: TrainState | None = fit(
            parts.objective,
            initial_state(parts.params, parts.buffers),
            parts.train,
            parts.optimiser,
            steps=recipe.outer.steps,
            batch=recipe.outer.batch,
            plan=plan,
            schedule=parts.schedule,
            clip=recipe.outer.clip,
            validation=Validation(score, every, better) if every else None,
            log=log,
        )
    except NonFiniteError:
        state = None
    return Fitted(recipe, parts, state, curve)


def judged(
    found: Fitted, split: str = "test", rate: float | None = None, steps: int | None = None
) -> Interval:
    """Score on held-out tasks, at another rate or number of steps if given; nan if training failed."""
    recipe, parts = found.recipe, found.parts
    if found.state is None:
        return Interval(math.nan, math.nan, 0)
    inner = recipe.inner if rate is None else recipe.inner.model_copy(update={"lr": rate})
    ways = largest_ways(recipe) if recipe.tasks.family in IMAGE_FAMILIES else 0
    after = steps if steps is not None else recipe.inner.test_steps or recipe.inner.steps
    learner = build_learner(inner, parts.network, after, ways)
    sampler, episodes = (
        (parts.test, recipe.eval.episodes)
        if split == "test"
        else (parts.validation, recipe.eval.validation_episodes)
    )
    weights = for_test(found.state.params, found.state.buffers)
    with torch.no_grad():
        return evaluate(learner, *weights, sampler, parts.loss, episodes, plan_for(recipe)).interval
