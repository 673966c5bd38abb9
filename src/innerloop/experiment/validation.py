"""Validation on the way, from a recipe."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from innerloop.core.losses import is_classification
from innerloop.core.statistics import Interval
from innerloop.core.types import Buffers, Params
from innerloop.evaluation import evaluate
from innerloop.execution import Plan
from innerloop.experiment.build import Parts, for_test
from innerloop.experiment.heads import judge_head
from innerloop.experiment.learner import test_steps
from innerloop.recipes.schema import Recipe
from innerloop.training.fit import Validation


def validation_of(recipe: Recipe, parts: Parts, plan: Plan) -> Validation:
    """How a recipe is validated while it trains."""
    score = _scorer(recipe, parts, plan)
    outer = recipe.outer
    return Validation(
        score,
        every=recipe.eval.every or max(1, outer.steps // 10),
        higher_is_better=is_classification(parts.loss),
        patience=recipe.eval.patience,
        plateau=(outer.factor, outer.plateau_patience) if outer.schedule == "plateau" else None,
    )


def _scorer(recipe: Recipe, parts: Parts, plan: Plan) -> Callable[[Params, Buffers], Interval]:
    learner = parts.learner_after(test_steps(recipe))
    episodes = recipe.eval.validation_episodes

    def by_head(params: Params, buffers: Buffers) -> Interval:
        given = for_test(params, buffers)
        return judge_head(recipe, parts.network, *given, "validation", episodes, plan).interval

    def score(params: Params, buffers: Buffers) -> Interval:
        with torch.no_grad():
            found = evaluate(
                learner,
                *for_test(params, buffers),
                parts.validation,
                parts.loss,
                episodes,
                plan,
            )
        return found.interval

    return score if recipe.eval.head == "learner" else by_head


def validation_words(record: dict[str, Any]) -> str:
    """A validation in words; one that is not finite never counts as the best, and training goes on."""
    if not math.isfinite(record["validation"]):
        return "is not finite, so these weights cannot be the best: lower inner.lr or inner.test_steps"
    return f"{record['validation']:.4g} ± {record['ci95']:.2g}"
