"""One run: build, decide how to execute, train, evaluate, and leave everything in a directory."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from innerloop.choose.rates import provisional, refuse_unknown_rate, settled
from innerloop.core.errors import NonFiniteError, Problems, UserError
from innerloop.core.losses import score_name
from innerloop.experiment.backbone_run import evaluate_backbone_run, judge_again, judge_only
from innerloop.experiment.divergence import rate_words
from innerloop.experiment.evaluation import evaluate_parts
from innerloop.experiment.fitting import fit_parts
from innerloop.experiment.judged import Judged
from innerloop.experiment.lifetime import begun, ending
from innerloop.experiment.loading import best_or_last, check_whole, load_run
from innerloop.experiment.parts import Parts, build
from innerloop.experiment.pictures import held_out
from innerloop.experiment.planned import Slowdown, check_kept_plan, planned
from innerloop.experiment.pretrained import seen_notes
from innerloop.experiment.recipe.fitted import refuse_unfitted
from innerloop.experiment.recipe.grammar import Items
from innerloop.experiment.recipe.judging import NOTHING
from innerloop.experiment.recipe.library import look_at, recipe_of
from innerloop.experiment.recipe.protocols import refuse_mixed_ways
from innerloop.experiment.recipe.rules import rate_warning
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.results import TrainResult
from innerloop.experiment.run_data import check_data, hard_words, with_kept_data
from innerloop.experiment.together import ranks_here, ranks_notes
from innerloop.experiment.tracked import final_scores, tracked
from innerloop.experiment.validation import validation_of, validation_words
from innerloop.experiment.words import recipe_words
from innerloop.learners.base import OWN_PREFIX
from innerloop.runs.checkpoints import clear_leftovers, load_checkpoint, save_checkpoint
from innerloop.runs.directory import RECIPE, refuse_links
from innerloop.runs.manifest import read_manifest, start_manifest, update_manifest
from innerloop.runs.metrics import MetricsWriter, truncate_after
from innerloop.runs.process import alive, sole_writer
from innerloop.runs.progress import Progress, RunLog, progress
from innerloop.runs.tracking import check_followers
from innerloop.training.execution.plan import Plan
from innerloop.training.execution.probes import check_compiler
from innerloop.training.execution.worker_pool import worker_warnings
from innerloop.training.state import TrainState, in_order, state_from


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
    refuse_unfitted(recipe)
    if recipe.outer.objective == NOTHING:
        return judge_only(recipe, argv=argv, progress=progress, notes=notes)
    problems = Problems()  # all of them come before anything is written
    with problems.collect():
        refuse_mixed_ways(recipe, training=True)
    with problems.collect():
        refuse_unknown_rate(recipe)
    with problems.collect():
        check_compiler(recipe.run.compile)
    with problems.collect():
        check_followers(recipe.run.tensorboard, recipe.run.track)
    with problems.collect():
        parts = build(provisional(recipe))
    problems.refuse()
    kept = {"device": parts.recipe.run.device, "sizes": parts.sizes.as_dict()}
    with begun(recipe, parts.data, argv, kept) as run:
        return _carry_out(recipe, parts, run, parts.first, progress, notes)


@recipe_words()
def resume(run: Path, *, trust: bool = False, progress: bool = True, force: bool = False) -> TrainResult:
    """Continues a run where its last checkpoint left it; the result is as if it had never stopped.

    Takes the run and nothing else: its recipe and its plan are in its directory.

    Args:
        run: its directory.
        trust: whether code that the recipe names may be imported.
        progress: whether to show progress on standard error.
        force: go on although the manifest names a process that seems to be alive.

    Raises:
        UserError: another process works on it.
        ChangedRecipeError: the recipe is not the one that the run was started with.
        DamagedCheckpointError: the checkpoint is not as it was saved.
        UntrustedCodeError: the recipe names code from outside, and is not trusted.
    """
    with sole_writer(run) as locked_before:  # first of all: two at once would mix what they write
        clear_leftovers(run)
        recipe = recipe_of(run, trust=trust)
        manifest = _manifest_or_new(run, recipe)
        if manifest["status"] == "finished":
            raise UserError(
                f"{run} is finished; `innerloop eval {run}` judges it, `innerloop train` starts another."
            )
        if not (locked_before or force):
            _refuse_running(run, manifest)
        if recipe.outer.objective == NOTHING:
            return judge_again(run, recipe, progress=progress)
        check_kept_plan(run, manifest.get("plan") or {})
        check_followers(recipe.run.tensorboard, recipe.run.track)
        recipe, notes = _same_data(recipe, run)
        parts = build(provisional(recipe))
        saved = load_checkpoint(run, "last")
        state = parts.first
        if saved is not None:
            state = in_order(state_from(*saved), parts.params, parts.buffers)
            check_whole(state, parts.first, run)
        truncate_after(run / "metrics.jsonl", state.step)
        return _carry_out(recipe, parts, run, state, progress, notes)


def _refuse_running(run: Path, manifest: dict[str, Any]) -> None:
    """Runs of earlier versions had no lock: the process that they name may be theirs, or have its number."""
    if (
        manifest["status"] == "running"
        and manifest.get("pid") != os.getpid()
        and alive(manifest) is not False
    ):
        raise UserError(
            f"{run} is still running (process {manifest.get('pid')}): stop that first; if that is another "
            "program, add --force."
        )


def _same_data(recipe: Recipe, run: Path) -> tuple[Recipe, list[str]]:
    """The recipe with the split that the run kept, and remarks; refuses where any of it has changed."""
    kept = with_kept_data(recipe, recipe, run)
    return kept, check_data(kept, recipe, run, ("train", "validation", "test"))


def _manifest_or_new(run: Path, recipe: Recipe) -> dict[str, Any]:
    """The manifest; a run killed before it had one gets it now."""
    try:
        return read_manifest(run)
    except UserError:
        kept = {"status": "interrupted", "recipe": recipe.model_dump()}
        return start_manifest(run, None, (run / RECIPE).read_text(encoding="utf-8"), kept)


def _carry_out(
    recipe: Recipe, parts: Parts, run: Path, state: TrainState, show: bool, notes: Sequence[str] = ()
) -> TrainResult:
    started, log = time.perf_counter(), RunLog(run / "log.txt")
    before = read_manifest(run).get("ranks", 1) if state.step else None
    update_manifest(run, status="running", diverged=False, ranks=ranks_here())
    first_step, steps = state.step, recipe.outer.steps
    seen = seen_notes(recipe)
    notes = [*notes, *_warnings(recipe), *ranks_notes(recipe, before), *seen]
    with progress(steps, f"training {recipe.name}", show, log=log, start=first_step) as bar:
        bar.line(f"run: {run}")
        if ranks_here() > 1:
            bar.line(f"{ranks_here()} ranks share the tasks of every step")
        for remark in (held_out(recipe), hard_words(parts.data)):
            if remark is not None:
                bar.line(remark)
        for note in notes:
            bar.line(f"warning: {note}")
        with ending(run, log, bar), worker_warnings(bar.line):
            parts, state = settled(recipe, parts, run, state, bar.line)
            plan, expected = planned(parts, run, bar, steps - state.step)
            known = tracked(parts.recipe, run, bar.line)
            with MetricsWriter(run / "metrics.jsonl", recipe.run.tensorboard, known) as metrics:
                fitted_at = time.perf_counter()
                # steps of several ranks draw their tasks too, and wait for the slowest
                slowdown = Slowdown(plan, expected if ranks_here() == 1 else None, bar.line)
                state = _fit(parts, run, state, plan, metrics, bar, slowdown)
                seconds = time.perf_counter() - fitted_at
                bar.line(f"trained {state.step} steps; evaluating on {recipe.eval.episodes} held-out tasks")
                weights, used = best_or_last(recipe, run, state)
                evaluation = evaluate_parts(parts, weights, plan, run, used, notes=seen or None)
                metrics.tell(final_scores(evaluation, state.step))
    done = state.step - first_step
    speed = done * recipe.outer.batch / seconds if done else None
    update_manifest(run, status="finished", reason=None if state.step == steps else "validation stalled")
    return TrainResult(run, state.step, evaluation, speed, plan, time.perf_counter() - started, notes)


def _fit(
    parts: Parts,
    run: Path,
    state: TrainState,
    plan: Plan,
    metrics: MetricsWriter,
    bar: Progress,
    slowdown: Slowdown,
) -> TrainState:
    recipe, name, first = parts.recipe, score_name(parts.loss), state.step + 1
    own: dict[str, float] = {}

    def tell(step: int, loss: float, seconds: float) -> None:
        """Shows every step, whether its record is kept or not: some take minutes."""
        if step == first:
            bar.begin(step)
        bar.update(step, loss=loss, **own)
        slowdown(seconds)

    def log(record: dict[str, Any]) -> None:
        """Shows a record, and writes it to the run's metrics."""
        if "validation" in record:
            record = {**record, "score": name}
            bar.line(f"step {record['step']}: validation {name} {validation_words(record)}")
        else:
            own.update({n.removeprefix(OWN_PREFIX): v for n, v in record.items() if n.startswith(OWN_PREFIX)})
        metrics.write(record)

    def save(snapshot: TrainState, tags: tuple[str, ...]) -> None:
        """Keeps a checkpoint."""
        scalars = {**snapshot.scalars(), "inner_lr": recipe.inner.lr}
        save_checkpoint(run, snapshot.step, snapshot.tensors(), scalars, tags)

    try:
        validation = validation_of(parts, plan)
        return fit_parts(parts, state, plan=plan, validation=validation, log=log, save=save, tell=tell)
    except NonFiniteError as error:
        hint = f"{rate_words(recipe)}, under loss={recipe.inner.loss}, with outer.lr={recipe.outer.lr:g}"
        raise NonFiniteError(f"{error} ({hint}; run: {run})") from None


def _warnings(recipe: Recipe) -> list[str]:
    """What to say before a recipe is trained or evaluated."""
    warning = rate_warning(recipe)
    return [warning] if warning else []


@recipe_words()
def evaluate_run(run: Path, overrides: Items, *, trust: bool = False) -> Judged:
    """Judges a run by its own protocol, or by one changed with ``key=value`` settings.

    ``trust`` says whether code that the run's recipe names may be imported.

    Args:
        run: the run's directory.
        overrides: ``key=value`` settings; none for its own protocol.
        trust: whether code that the run's recipe names may be imported.

    Raises:
        UserError: the pictures of its test split have changed, or its predictions are not finite.
    """
    refuse_links(run)
    if look_at(run).outer.objective == NOTHING:
        return evaluate_backbone_run(run, overrides, trust=trust)
    loaded = load_run(run, overrides, trust=trust)
    recipe = loaded.parts.recipe
    notes = [*check_data(recipe, loaded.trained, run, ("test",)), *_warnings(recipe), *loaded.unread]
    notes += seen_notes(recipe, loaded.trained)
    weights, used = loaded.weights()
    return evaluate_parts(
        loaded.parts, weights, loaded.plan, run, used, loaded.changed, notes, loaded.trained
    )
