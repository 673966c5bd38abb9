"""Validation on the way, from a recipe."""

from __future__ import annotations

import math
from typing import Any

from innerloop.core.losses import is_classification
from innerloop.core.statistics import Interval
from innerloop.core.types import Buffers, Params
from innerloop.experiment.fitting import judge
from innerloop.experiment.parts import Parts
from innerloop.training.execution.plan import Plan
from innerloop.training.loop import Validation


def validation_of(parts: Parts, plan: Plan) -> Validation:
    """How a recipe is validated while it trains."""
    recipe, outer = parts.recipe, parts.recipe.outer

    def score(params: Params, buffers: Buffers) -> Interval:
        """The score on validation tasks."""
        episodes = recipe.eval.validation_episodes
        return judge(parts, params, buffers, "validation", episodes, plan).interval

    return Validation(
        score,
        every=recipe.eval.every or max(1, outer.steps // 10),
        higher_is_better=is_classification(parts.loss),
        patience=recipe.eval.patience,
        plateau=(outer.factor, outer.plateau_patience) if outer.schedule == "plateau" else None,
    )


def validation_words(record: dict[str, Any]) -> str:
    """A validation in words; one that is not finite never counts as the best, and training goes on."""
    if not math.isfinite(record["validation"]):
        return "is not finite, so these weights cannot be the best: lower inner.lr or inner.test_steps"
    return f"{record['validation']:.4g} ± {record['ci95']:.2g}"
