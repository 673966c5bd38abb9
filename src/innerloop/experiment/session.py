"""How a run begins, what is said around its training, and what its manifest says if it ended badly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from innerloop.core.errors import NonFiniteError, Problems, UserError, fault_message
from innerloop.core.files import write_text_atomic
from innerloop.experiment.data import Data
from innerloop.experiment.inner_rate import provisional, refuse_unknown_rate
from innerloop.experiment.parts import Parts, build
from innerloop.experiment.pictures import held_out
from innerloop.experiment.ranks import ranks_here, ranks_notes, remember_run
from innerloop.experiment.recipe.picture_fit import refuse_unfitted
from innerloop.experiment.recipe.protocols import refuse_mixed_ways
from innerloop.experiment.recipe.rules import rate_warnings
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import recipe_to_toml
from innerloop.experiment.run_data import data_record, hard_words, keep_data, seen_notes
from innerloop.runs.directory import RECIPE, create_run
from innerloop.runs.manifest import read_manifest, start_manifest, update_manifest
from innerloop.runs.process import sole_writer
from innerloop.runs.progress import Progress, RunLog, progress
from innerloop.runs.tracking import check_followers
from innerloop.training.execution.probes import check_compiler
from innerloop.training.execution.worker_pool import worker_warnings


def build_checked(recipe: Recipe) -> Parts:
    """The parts of a recipe that is to be trained; all mistakes come before anything is written."""
    refuse_unfitted(recipe)
    problems = Problems()
    with problems.collect():
        refuse_mixed_ways(recipe, training=True)
    with problems.collect():
        refuse_unknown_rate(recipe)
    with problems.collect():
        check_compiler(recipe.run.compile)
        if recipe.run.compile == "native" and recipe.run.execution not in ("auto", "threads", "loop"):
            raise UserError("run.compile=native needs run.execution=threads or loop, or leave that out.")
        if recipe.run.compile == "native" and recipe.inner.checkpoint:
            raise UserError("run.compile=native keeps all inner steps: leave inner.checkpoint=true out.")
    with problems.collect():
        check_followers(recipe.run.tensorboard, recipe.run.track)
    with problems.collect():
        parts = build(provisional(recipe))
        if recipe.run.compile == "native" and parts.network.descend is None:
            raise UserError(
                f"run.compile=native is for model.kind=conv4, and not for {recipe.model.kind}: leave it out."
            )
    problems.refuse()
    return parts


@contextmanager
def new_run(recipe: Recipe, data: Data, argv: list[str] | None, more: Mapping[str, Any]) -> Iterator[Path]:
    """A new run directory with recipe, manifest and split, which this process alone writes to meanwhile."""
    run = create_run(Path(recipe.run.folder), recipe.name, recipe.run.seed)
    text = recipe_to_toml(recipe)
    with sole_writer(run):
        write_text_atomic(run / RECIPE, text)
        start_manifest(run, argv, text, {"data": data_record(data), "recipe": recipe.model_dump(), **more})
        keep_data(data, run)
        remember_run(run)
        yield run


@contextmanager
def record_end(run: Path, log: RunLog, bar: Progress) -> Iterator[None]:
    """Writes into the manifest how a run ended, if it did not end well."""
    try:
        yield
    except KeyboardInterrupt:
        with suppress(OSError):
            update_manifest(run, status="interrupted", reason="interrupted; `innerloop resume` continues it")
            bar.line(f"interrupted: `innerloop resume {run}` continues it")
        raise
    except BaseException as error:
        told = fault_message(error) or str(error)
        reason = (told.splitlines() or [type(error).__name__])[0]
        with suppress(
            OSError
        ):  # on a full disk nothing can be written, and the first error is the one to tell
            # numbers that were not finite would not be the next time either: a sweep need not try again
            update_manifest(run, status="failed", reason=reason, diverged=isinstance(error, NonFiniteError))
            log.line(f"failed: {told}")
        raise


@contextmanager
def session(
    recipe: Recipe, parts: Parts, run: Path, step: int, show: bool, notes: Sequence[str]
) -> Iterator[Progress]:
    """Around a training from some step on: its progress, what is said first, and how it ends."""
    log = RunLog(run / "log.txt")
    update_manifest(run, status="running", diverged=False, ranks=ranks_here())
    with progress(recipe.outer.steps, f"training {recipe.name}", show, log=log, start=step) as bar:
        bar.line(f"run: {run}")
        if ranks_here() > 1:
            bar.line(f"{ranks_here()} ranks share the tasks of every step")
        for remark in (held_out(recipe), hard_words(parts.data)):
            if remark is not None:
                bar.line(remark)
        for note in notes:
            bar.line(f"warning: {note}")
        with record_end(run, log, bar), worker_warnings(bar.line):
            yield bar


def finish(run: Path, reason: str | None = None) -> None:
    """Writes into the manifest that a run is finished, and why if that was before its last step."""
    update_manifest(run, status="finished", reason=reason)


def training_notes(recipe: Recipe, run: Path, step: int) -> list[str]:
    """What is to be said of a recipe before it is trained from a step on."""
    before = read_manifest(run).get("ranks", 1) if step else None
    return [*rate_warnings(recipe), *ranks_notes(recipe, before), *seen_notes(recipe)]
