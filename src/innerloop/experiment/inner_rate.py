"""``inner.lr="auto"`` in a run: the recipe keeps the word, the manifest and every checkpoint the number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss, is_classification
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.picture_fit import with_settings
from innerloop.experiment.recipe.schema import Recipe
from innerloop.learners.table import LEARNERS, estimated_rates
from innerloop.runs.checkpoints import load_checkpoint
from innerloop.runs.manifest import read_manifest, update_manifest
from innerloop.training.state import TrainState

PROVISIONAL = 0.01
"""Stands in for a rate that is not known yet, where parts are only built to find mistakes."""

FOLDER = "rates"
"""Of a run: what was decided, and how every rate did."""

HEAD_ONLY = tuple(name for name in estimated_rates() if LEARNERS[name].adapts == "head")
"""Methods that adapt the last layer alone: theory gives a bracket for their rate."""

Say = Callable[[str], None]


def with_rate(recipe: Recipe, rate: float) -> Recipe:
    """The recipe with a number for its inner rate."""
    return with_settings(recipe, {"inner": {"lr": float(rate)}})


def provisional(recipe: Recipe) -> Recipe:
    """The recipe with some number in place of ``auto``: to build parts whose rate does not matter yet."""
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
    """Parts and state with a number for the rate; a head-only learner's own is compared with the bracket."""
    if recipe.inner.lr != "auto":
        if state.step == 0:
            _compare_own_rate(parts, run, say)
        return parts, state
    rate = read_rate(run)
    if rate is None:
        from innerloop.choose.rates import estimate

        record = estimate(parts, run / FOLDER, say)
        update_manifest(run, rate=record)
        rate = record["alpha"]
    else:
        say(f"inner.lr=auto: {rate:.4g}, as before")
    chosen = parts.at_rate(rate)
    return chosen, state if state.step else chosen.first


def _compare_own_rate(parts: Parts, run: Path, say: Say) -> None:
    """Warns of a head-only learner's rate far outside the bracket; says nothing where there is no bracket."""
    inner = parts.recipe.inner
    known = inner.method in HEAD_ONLY and inner.optimiser == "sgd" and inner.steps > 0
    known = known and is_classification(get_loss(inner.loss))
    if not known or parts.recipe.outer.objective != "episodic" or not isinstance(inner.lr, float):
        return
    from innerloop.choose.rates import compare_rate

    record = compare_rate(parts, inner.lr)
    if record is None:
        return
    update_manifest(run, rate=record)
    if record["warning"]:
        say(f"warning: {record['warning']}")
