"""Training a recipe in a run directory, and evaluating the result."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from innerloop.experiment.fitting import fit_parts, validation_of
from innerloop.experiment.inner_rate import settle_rate
from innerloop.experiment.loading import best_or_last
from innerloop.experiment.messages import rate_hint, recipe_words
from innerloop.experiment.parts import Parts
from innerloop.experiment.plan import Slowdown, measured_again, plan_of
from innerloop.experiment.recipe.rules import NOTHING
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.results import TrainResult
from innerloop.experiment.run_data import seen_notes
from innerloop.experiment.run_evaluation import evaluate_parts
from innerloop.experiment.session import (
    RunRecorder,
    build_checked,
    finish,
    new_run,
    session,
    timed,
    training_notes,
)
from innerloop.runs.manifest import now
from innerloop.training.state import TrainState


@recipe_words()
def train(
    recipe: Recipe, *, argv: list[str] | None = None, progress: bool = True, notes: Sequence[str] = ()
) -> TrainResult:
    """Trains a recipe in a new run directory and evaluates the result.

    Args:
        recipe: what to train.
        argv: the command line, for the manifest.
        progress: whether to show progress on standard error.
        notes: warnings to give first, such as settings that are not read.
    """
    if recipe.outer.objective == NOTHING:
        from innerloop.experiment.backbone_run import judge_only

        return judge_only(recipe, argv=argv, progress=progress, notes=notes)
    parts = build_checked(recipe)
    kept = {"device": parts.recipe.run.device, "sizes": parts.sizes.as_dict()}
    with new_run(recipe, parts.data, argv, kept) as run:
        return train_from(parts.first, recipe, parts, run, progress, notes)


def train_from(
    state: TrainState, recipe: Recipe, parts: Parts, run: Path, show: bool, notes: Sequence[str]
) -> TrainResult:
    """Trains in a run's directory from some state to the end, and evaluates the result."""
    started, first_step, steps = time.perf_counter(), state.step, recipe.outer.steps
    spent: dict[str, float] = {}
    notes, seen = [*notes, *training_notes(recipe, run, first_step)], seen_notes(recipe)
    with session(recipe, parts, run, first_step, show, notes) as bar:
        parts, state = settle_rate(recipe, parts, run, state, bar.line)
        with timed(spent, "plan"):
            plan, expected = plan_of(parts, run, bar, steps - first_step)
        pace = Slowdown(plan, expected, bar.line, partial(measured_again, parts, run))
        with RunRecorder(parts, run, bar, pace) as record:
            validation, began = validation_of(parts, plan), now("milliseconds")
            with rate_hint(recipe, run), timed(spent, "fit"):
                state = fit_parts(
                    parts,
                    state,
                    plan=plan,
                    validation=validation._replace(score=timed(spent, "validation")(validation.score)),
                    log=timed(spent, "logging")(record.log),
                    save=timed(spent, "checkpoints")(record.save),
                    tell=record.tell,
                )
            bar.line(f"trained {state.step} steps; evaluating on {recipe.eval.episodes} held-out tasks")
            with timed(spent, "test"):
                weights, used = best_or_last(recipe, run, state)
                evaluation = evaluate_parts(parts, weights, pace.plan, run, used, notes=seen or None)
            record.finish(evaluation, state.step)
    done = state.step - first_step
    speed = done * recipe.outer.batch / spent["fit"] if done else None
    finish(run, None if state.step == steps else "validation stalled", first_step=began, seconds=spent)
    return TrainResult(run, state.step, evaluation, speed, pace.plan, time.perf_counter() - started, notes)
