"""What a recipe calls things in messages, and what is said when numbers are not finite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from innerloop.core.errors import NonFiniteError, spelling
from innerloop.experiment.recipe.schema import Recipe
from innerloop.learners.table import takes_steps

if TYPE_CHECKING:
    from torch import Tensor

    from innerloop.evaluation.scores import Evaluation

_ALIKE = {
    "tasks": "choice hard_groups hard_share hardest settings",
    "inner": "checkpoint head_start method optimiser steps",
    "outer": "clip hard_weight heads options",
    "eval": "ensemble label_orders",
    "model": "last_layer",
    "data": "leave_out",
    "run": "compile execution folder tensorboard track",
    "tasks.settings": "covariances optima weights",
}
RECIPE_WORDS = {name: f"{section}.{name}" for section, names in _ALIKE.items() for name in names.split()} | {
    **{f"the learner's {name}": f"inner.settings.{name}" for name in ("C", "cg_steps", "damping", "scale")},
    "the learner's penalty": "inner.settings.penalty",
    "the learner's own steps": "inner.settings.steps",
    "the learner's lr": "inner.lr",
    "the learner's steps": "inner.steps",
    "the optimiser's lr": "outer.lr",
    "the estimate": "inner.lr=auto",
    "meta-optimiser": "outer.optimiser",
    "no adaptation": "inner.method=none",
    'on_bad="skip"': "data.on_bad=skip",
    "precision=float32": "run.bfloat16=false",
    "grid": "eval.C_grid",
    "rate": "inner.lr",
}
"""Arguments as messages name them, and the settings of a recipe that they come from."""


@contextmanager
def recipe_words() -> Iterator[None]:
    """Within it, and in errors that leave it, arguments have a recipe's words; a context and a decorator."""
    with spelling(RECIPE_WORDS):
        yield


@contextmanager
def episode_words(kinds: int, training: bool) -> Iterator[None]:
    """The same for an episode's shape, set in ``tasks``, in ``eval``, or in a mixture of ``kinds``."""
    if not kinds:
        section = "tasks" if training else "eval"
        shape = ("ways", "shots", "queries")
        table = {name: f"{section}.{name}" for name in shape}
        # hard tasks and others are two kinds, which have their shape from here
        table |= {f"kinds[{i}].{name}": f"{section}.{name}" for i in (0, 1) for name in shape}
        table |= {f"kinds[{i}].choice": "tasks.choice" for i in (0, 1)}
    else:
        table = {
            f"kinds[{place}].{name}" if kinds > 1 else name: f"tasks.mixture[{place}].{name}"
            for place in range(kinds)
            for name in ("ways", "shots", "queries", "choice")
        }
    with spelling(table):
        yield


def rate_words(recipe: Recipe) -> str:
    """The inner rate as a message states it, and whether it is negative."""
    rate = recipe.inner.lr
    if rate == "auto":
        return "inner.lr=auto"
    return f"inner.lr={rate:g}" + (
        ", which is negative, so that inner steps climb the loss" if rate < 0 else ""
    )


@contextmanager
def rate_hint(recipe: Recipe, run: Path) -> Iterator[None]:
    """Adds the rates to what is said of a training whose numbers are not finite."""
    try:
        yield
    except NonFiniteError as error:
        hint = f"{rate_words(recipe)}, under loss={recipe.inner.loss}, with outer.lr={recipe.outer.lr:g}"
        raise NonFiniteError(f"{error} ({hint}; run: {run})") from None


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
