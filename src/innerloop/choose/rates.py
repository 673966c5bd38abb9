"""``inner.lr="auto"``: estimated before the first step, by a race of rates where theory gives a range only.

The recipe keeps the word; the number stands in the manifest (``rate``) and in every checkpoint, so that a
resume and an evaluation use the one that was trained with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from innerloop.choose.rate_advice import HEAD_ONLY, RateAdvice, advise_rate, warning_for
from innerloop.choose.rate_sweep import Say, sweep_rates
from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss, is_classification
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.weights import for_test
from innerloop.runs.checkpoints import load_checkpoint
from innerloop.runs.manifest import read_manifest, update_manifest
from innerloop.training.state import TrainState

PROVISIONAL = 0.01
"""Stands in for a rate that is not known yet, where parts are only built to find mistakes."""


CHECKED = 32
"""Tasks that a user's own rate is checked against."""


FOLDER = "rates"
"""Of a run: what was decided, and how every rate did."""


def with_rate(recipe: Recipe, rate: float) -> Recipe:
    """The recipe with a number for its inner rate."""
    return recipe.model_copy(update={"inner": recipe.inner.model_copy(update={"lr": float(rate)})})


def provisional(recipe: Recipe) -> Recipe:
    """The recipe with some number in place of ``auto``: to build parts whose rate does not matter yet.

    >>> provisional(Recipe()).inner.lr
    0.01
    """
    return with_rate(recipe, PROVISIONAL) if recipe.inner.lr == "auto" else recipe


def refuse_unknown_rate(recipe: Recipe) -> None:
    """Refuses ``auto`` where its estimate is known to fail: heads under squared errors (``docs/rate.md``)."""
    inner = recipe.inner
    if inner.lr != "auto" or inner.method not in HEAD_ONLY or is_classification(get_loss(inner.loss)):
        return
    raise UserError(
        f"inner.lr=auto is not offered for inner.method={inner.method} with inner.loss={inner.loss}, where "
        "the estimate was 11 times too small: give a number; `innerloop analyze rate RECIPE` gives a bracket "
        "to start from, and rates far above it may do better."
    )


def read_rate(run: Path) -> float | None:
    """What ``auto`` settled on in this run: from its manifest, else from its last checkpoint."""
    try:
        rate = (read_manifest(run).get("rate") or {}).get("alpha")
    except UserError:
        rate = None
    if rate is None:
        saved = load_checkpoint(run, "last")
        rate = saved.state.get("inner_lr") if saved else None
    return None if rate is None else float(rate)


def with_trained_rate(recipe: Recipe, run: Path) -> Recipe:
    """The recipe of a run with the rate it was trained with."""
    if recipe.inner.lr != "auto":
        return recipe
    rate = read_rate(run)
    if rate is None:
        raise UserError(f"{run} has not estimated its inner.lr yet: `innerloop resume {run}` does.")
    return with_rate(recipe, rate)


def settle_rate(
    recipe: Recipe, parts: Parts, run: Path, state: TrainState, say: Say
) -> tuple[Parts, TrainState]:
    """Parts and state with a number for the rate.

    What ``auto`` found goes to the manifest and to ``say``. A user's own rate is left alone, but a
    head-only learner's is compared with the bracket first.
    """
    if recipe.inner.lr != "auto":
        if state.step == 0:
            check_own_rate(parts, run, say)
        return parts, state
    rate = read_rate(run)
    if rate is None:
        record = estimate(parts, run / FOLDER, say)
        update_manifest(run, rate=record)
        rate = record["alpha"]
    else:
        say(f"inner.lr=auto: {rate:.4g}, as before")
    chosen = parts.at_rate(rate)
    return chosen, state if state.step else chosen.first


def advice_for(parts: Parts, tasks: int | None = None) -> RateAdvice:
    """The estimate for a recipe's learner at its first weights."""
    inner = parts.recipe.inner
    return advise_rate(
        parts.network,
        *for_test(parts.params, parts.buffers),
        parts.data.train,
        get_loss(inner.loss),
        method=inner.method,
        steps=inner.steps,
        optimiser=inner.optimiser,
        momentum=inner.momentum,
        tasks=tasks,
        seed=parts.recipe.run.seed,
    )


def estimate(parts: Parts, folder: Path, say: Say) -> dict[str, Any]:
    """The record of ``auto``: the advice, and the sweep where there is one (the folder keeps its trials)."""
    advice = advice_for(parts)
    record: dict[str, Any] = {"setting": "auto", **advice.as_dict()}
    say(f"inner.lr=auto: {advice.kind} [{advice.low:.3g}, {advice.high:.3g}], looked at {advice.tasks} tasks")
    for reason in advice.reasons:
        say(reason)
    if len(advice.sweep) > 1:
        record |= sweep_rates(parts, advice, folder, say)
    say(f"inner.lr={record['alpha']:.4g} ({advice.convention})")
    return record


def check_own_rate(parts: Parts, run: Path, say: Say) -> None:
    """Warns of a head-only learner's rate far outside the bracket; says nothing where there is no bracket."""
    inner = parts.recipe.inner
    known = inner.method in HEAD_ONLY and inner.optimiser == "sgd" and inner.steps > 0
    known = known and is_classification(get_loss(inner.loss))
    if not known or parts.recipe.outer.objective != "episodic" or not isinstance(inner.lr, float):
        return
    try:
        advice = advice_for(parts, tasks=CHECKED)
    except UserError:  # no bracket: nothing to compare with
        return
    warning = warning_for(inner.lr, advice)
    record = {
        "setting": inner.lr,
        "low": advice.low,
        "high": advice.high,
        "warning": warning,
        "tasks": CHECKED,
    }
    update_manifest(run, rate=record)
    if warning:
        say(f"warning: {warning}")
