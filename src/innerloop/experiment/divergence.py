"""What is said when numbers are not finite: what, in how many tasks, why, and what to change."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from innerloop.core.errors import NonFiniteError
from innerloop.evaluation.scores import Evaluation
from innerloop.experiment.recipe.schema import Recipe
from innerloop.learners.table import takes_steps


def rate_words(recipe: Recipe) -> str:
    """The inner rate as a message states it, and whether it is negative.

    >>> rate_words(Recipe.model_validate({"inner": {"lr": -1.0}}))
    'inner.lr=-1, which is negative, so that inner steps climb the loss'
    """
    rate = recipe.inner.lr
    if rate == "auto":
        return "inner.lr=auto"
    return f"inner.lr={rate:g}" + (
        ", which is negative, so that inner steps climb the loss" if rate < 0 else ""
    )


def refuse_not_finite(
    recipe: Recipe, evaluation: Evaluation, weights: dict[str, Tensor], steps: int, run: Path, file: Path
) -> None:
    """Refuses an evaluation with predictions that are not finite: a mean over the others would flatter."""
    bad = evaluation.not_finite
    if not bad:
        return
    broken = next((name for name, value in weights.items() if not bool(value.isfinite().all())), None)
    if broken is not None:
        cause, fix = f"since the trained weights are not ({broken})", "train again with a smaller outer.lr"
        kept = f"the checkpoints stay in {run}"
    else:
        cause, fix = _cause(recipe, steps)
        kept = f"the training is kept, so `innerloop eval {run}` with such a setting judges it"
    raise NonFiniteError(
        f"the predictions for {bad} of {len(evaluation.scores)} test tasks are not finite, {cause}: {fix}; "
        f"{kept} (scores of the single tasks: {file})."
    )


def _cause(recipe: Recipe, steps: int) -> tuple[str, str]:
    """Why predictions of finite weights are not finite, and what to change."""
    wanted = recipe.eval
    if wanted.head == "finetune":
        return (
            f"after {wanted.head_steps} steps of eval.head=finetune at eval.head_lr={wanted.head_lr:g}",
            "lower eval.head_lr or eval.head_steps",
        )
    if wanted.head != "learner" or not takes_steps(recipe.inner.method):
        return (
            "since the network's features overflow",
            "set run.dtype=float64, or train with a smaller outer.lr",
        )
    plural = "" if steps == 1 else "s"
    negative = recipe.inner.lr != "auto" and recipe.inner.lr < 0
    fix = "set a positive inner.lr" if negative else "lower inner.lr or inner.test_steps"
    return f"after {steps} inner step{plural} at {rate_words(recipe)}", fix
