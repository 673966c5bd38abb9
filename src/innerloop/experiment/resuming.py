"""Going on with a run that was interrupted, as if it had never stopped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError
from innerloop.experiment.inner_rate import provisional
from innerloop.experiment.loading import check_whole
from innerloop.experiment.messages import recipe_words
from innerloop.experiment.parts import build
from innerloop.experiment.plan import check_kept_plan
from innerloop.experiment.recipe.library import recipe_of
from innerloop.experiment.recipe.rules import NOTHING
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.results import TrainResult
from innerloop.experiment.run_data import check_data, with_kept_data
from innerloop.experiment.training import train_from
from innerloop.runs.checkpoints import clear_leftovers, load_checkpoint
from innerloop.runs.directory import RECIPE
from innerloop.runs.manifest import read_manifest, start_manifest
from innerloop.runs.metrics import truncate_after
from innerloop.runs.process import alive, sole_writer
from innerloop.runs.tracking import check_followers
from innerloop.training.state import in_order, state_from


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
            from innerloop.experiment.backbone_run import judge_again

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
        return train_from(state, recipe, parts, run, progress, notes)


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
