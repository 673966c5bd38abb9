"""``inner.lr="auto"``: estimated before the first step, by a short sweep where theory gives a range only.

The recipe keeps the word; the number stands in the manifest (``rate``) and in every checkpoint, so that a
resume and an evaluation use the one that was trained with.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from innerloop.advice.rate import HEAD_ONLY, RateAdvice, advise_rate, warning_for
from innerloop.core.errors import NonFiniteError, UserError
from innerloop.core.losses import get_loss, is_classification, score_name
from innerloop.evaluation import evaluate
from innerloop.execution import Plan
from innerloop.execution.plan import available_cores, set_intra_op_threads
from innerloop.recipes.build import Parts, build, for_test
from innerloop.recipes.pictures import IMAGE_FAMILIES
from innerloop.recipes.schema import Recipe
from innerloop.runs.checkpoints import load_checkpoint
from innerloop.runs.manifest import read_manifest, update_manifest
from innerloop.training import TrainState, fit, initial_state

PROVISIONAL = 0.01
"""Stands in for a rate that is not known yet, where parts are only built to find mistakes."""

SHARE = 0.05
"""Of the run's meta-steps that a sweep may take in all."""

CHECKED = 32
"""Tasks that a user's own rate is checked against."""

Say = Callable[[str], None]


def with_rate(recipe: Recipe, rate: float) -> Recipe:
    """The recipe with a number for its inner rate."""
    return recipe.model_copy(update={"inner": recipe.inner.model_copy(update={"lr": float(rate)})})


def provisional(recipe: Recipe) -> Recipe:
    """The recipe with some number in place of ``auto``: to build parts whose rate does not matter yet.

    >>> provisional(Recipe()).inner.lr
    0.01
    """
    return with_rate(recipe, PROVISIONAL) if recipe.inner.lr == "auto" else recipe


def recorded_rate(run: Path) -> float | None:
    """What ``auto`` settled on in this run: from its manifest, else from its last checkpoint."""
    try:
        found = (read_manifest(run).get("rate") or {}).get("alpha")
    except UserError:
        found = None
    if found is None:
        saved = load_checkpoint(run, "last")
        found = saved[1].get("inner_lr") if saved else None
    return None if found is None else float(found)


def as_trained(recipe: Recipe, run: Path) -> Recipe:
    """The recipe of a run with the rate it was trained with.

    Raises:
        UserError: it says ``auto`` and the run has not settled on a rate yet.
    """
    if recipe.inner.lr != "auto":
        return recipe
    rate = recorded_rate(run)
    if rate is None:
        raise UserError(f"{run} has not estimated its inner.lr yet: `innerloop resume {run}` does.")
    return with_rate(recipe, rate)


def settled(
    recipe: Recipe, parts: Parts, run: Path, state: TrainState, say: Say
) -> tuple[Recipe, Parts, TrainState]:
    """Recipe, parts and state with a number for the rate.

    What ``auto`` found goes to the manifest and to ``say``. A user's own rate is left alone, but a
    head-only learner's is compared with the bracket first.
    """
    if recipe.inner.lr != "auto":
        if state.step == 0:
            check_own_rate(recipe, parts, run, say)
        return recipe, parts, state
    rate = recorded_rate(run)
    if rate is None:
        record = estimate(recipe, parts, say)
        update_manifest(run, rate=record)
        rate = record["alpha"]
    else:
        say(f"inner.lr=auto: {rate:.4g}, as before")
    chosen = with_rate(recipe, rate)
    parts = build(chosen)
    return chosen, parts, state if state.step else initial_state(parts.params, parts.buffers)


def advice_for(recipe: Recipe, parts: Parts, tasks: int | None = None) -> RateAdvice:
    """The estimate for a recipe's learner at its first weights."""
    inner = recipe.inner
    return advise_rate(
        parts.network,
        *for_test(parts.params, parts.buffers),
        parts.train,
        get_loss(inner.loss),
        method=inner.method,
        steps=inner.steps,
        optimiser=inner.optimiser,
        momentum=inner.momentum,
        tasks=tasks,
        seed=recipe.run.seed,
    )


def estimate(recipe: Recipe, parts: Parts, say: Say) -> dict[str, Any]:
    """The record of ``auto``: the advice, and the sweep where there is one."""
    found = advice_for(recipe, parts)
    record: dict[str, Any] = {"setting": "auto", **found.as_dict()}
    say(f"inner.lr=auto: {found.kind} [{found.low:.3g}, {found.high:.3g}], looked at {found.tasks} tasks")
    for reason in found.reasons:
        say(reason)
    if len(found.sweep) > 1:
        record |= _swept(recipe, found, say)
    say(f"inner.lr={record['alpha']:.4g} ({found.convention})")
    return record


def _swept(recipe: Recipe, found: RateAdvice, say: Say) -> dict[str, Any]:
    each = int(SHARE * recipe.outer.steps) // len(found.sweep)
    if each < 1:
        why = (
            f"outer.steps={recipe.outer.steps} leaves no room for a sweep "
            f"({SHARE:.0%} of the steps for {len(found.sweep)} rates): {found.alpha:.3g} is taken without"
        )
        say(why)
        return {"sweep": [], "sweep_steps": 0, "reasons": [*found.reasons, why]}
    started = time.perf_counter()
    rows = [_tried(recipe, rate, each) for rate in found.sweep]
    usable = [row for row in rows if row["score"] is not None]
    if not usable:
        raise UserError(
            f"every rate of the sweep ({found.low:.3g} to {found.high:.3g}) made the loss infinite: "
            "set inner.lr to a smaller number, or outer.clip=10."
        )
    better = max if is_classification(get_loss(recipe.outer.loss or recipe.inner.loss)) else min
    best = better(usable, key=lambda row: row["score"])
    taken = each * len(rows)
    seconds = time.perf_counter() - started
    say(f"sweep of {len(rows)} rates, {each} steps each on the same episodes: {taken} steps, {seconds:.1f} s")
    return {
        "alpha": best["rate"],
        "sweep": rows,
        "sweep_steps": taken,
        "sweep_share": taken / recipe.outer.steps,
        "sweep_seconds": seconds,
    }


def _tried(recipe: Recipe, rate: float, steps: int) -> dict[str, Any]:
    """A few steps at one rate from the first weights, and their validation score (none if it diverged)."""
    from innerloop.recipes.evaluation import test_steps

    chosen = with_rate(recipe, rate)
    parts = build(chosen)
    pictures = recipe.tasks.family in IMAGE_FAMILIES or recipe.inner.checkpoint
    plan = Plan("threads" if pictures else "vmap", recipe.run.threads or available_cores(), recipe.run.chunk)
    set_intra_op_threads(plan)
    score: float | None = None
    ci95: float | None = None
    try:
        state = fit(
            parts.objective,
            initial_state(parts.params, parts.buffers),
            parts.train,
            parts.optimiser,
            steps=steps,
            batch=recipe.outer.batch,
            plan=plan,
            schedule=parts.schedule,
            clip=recipe.outer.clip,
        )
        with torch.no_grad():
            found = evaluate(
                parts.learner_after(test_steps(chosen)),
                *for_test(state.params, state.buffers),
                parts.validation,
                parts.loss,
                recipe.eval.validation_episodes,
                plan,
            )
        if math.isfinite(found.interval.mean):
            score, ci95 = found.interval.mean, found.interval.ci95
    except NonFiniteError:
        pass
    return {"rate": rate, "score": score, "ci95": ci95, "of": score_name(parts.loss)}


def check_own_rate(recipe: Recipe, parts: Parts, run: Path, say: Say) -> None:
    """Warns of a head-only learner's rate far outside the bracket; says nothing where there is no bracket."""
    inner = recipe.inner
    known = inner.method in HEAD_ONLY and inner.optimiser == "sgd" and inner.steps > 0
    known = known and is_classification(get_loss(inner.loss))
    if not known or recipe.outer.objective != "episodic" or not isinstance(inner.lr, float):
        return
    try:
        found = advice_for(recipe, parts, tasks=CHECKED)
    except UserError:  # no bracket: nothing to compare with
        return
    warning = warning_for(inner.lr, found)
    record = {"setting": inner.lr, "low": found.low, "high": found.high, "warning": warning, "tasks": CHECKED}
    update_manifest(run, rate=record)
    if warning:
        say(f"warning: {warning}")
