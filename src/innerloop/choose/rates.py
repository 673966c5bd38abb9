"""Estimates of ``inner.lr="auto"``: by a race of rates where theory gives a range only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from innerloop.choose.rate_advice import RateAdvice, advise_rate, warning_for
from innerloop.choose.rate_sweep import Say, sweep_rates
from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.experiment.parts import Parts
from innerloop.experiment.weights import for_test

CHECKED = 32
"""Tasks that a user's own rate is checked against."""


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


def compare_rate(parts: Parts, rate: float) -> dict[str, Any] | None:
    """A user's own rate beside the bracket, with a warning if it lies far outside; None without a bracket."""
    try:
        advice = advice_for(parts, tasks=CHECKED)
    except UserError:  # no bracket: nothing to compare with
        return None
    return {
        "setting": rate,
        "low": advice.low,
        "high": advice.high,
        "warning": warning_for(rate, advice),
        "tasks": CHECKED,
    }
