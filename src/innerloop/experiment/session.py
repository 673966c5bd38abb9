"""Around a training: how a run begins, what is kept and said meanwhile, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from innerloop.core.errors import NonFiniteError, Problems, UserError, fault_message
from innerloop.core.files import write_text_atomic
from innerloop.core.losses import score_name
from innerloop.experiment.data import Data
from innerloop.experiment.fitting import validation_words
from innerloop.experiment.inner_rate import provisional, refuse_unknown_rate
from innerloop.experiment.parts import Parts, build
from innerloop.experiment.pictures import held_out
from innerloop.experiment.plan import Slowdown
from innerloop.experiment.ranks import ranks_here, ranks_notes, remember_run
from innerloop.experiment.recipe.picture_fit import refuse_unfitted
from innerloop.experiment.recipe.protocols import refuse_mixed_ways
from innerloop.experiment.recipe.rules import rate_warnings
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import recipe_to_toml
from innerloop.experiment.results import Judged
from innerloop.experiment.run_data import data_record, hard_words, keep_data, seen_notes
from innerloop.learners.base import OWN_PREFIX
from innerloop.runs.checkpoints import save_checkpoint
from innerloop.runs.directory import RECIPE, create_run
from innerloop.runs.manifest import read_manifest, start_manifest, update_manifest
from innerloop.runs.metrics import MetricsWriter
from innerloop.runs.process import sole_writer
from innerloop.runs.progress import Progress, RunLog, progress
from innerloop.runs.tracking import NO_TRACKER, TrackerRun, check_followers
from innerloop.training.execution.auto import IMAGE_MODES
from innerloop.training.execution.plan import Plan
from innerloop.training.execution.probes import check_compiler
from innerloop.training.execution.worker_pool import worker_warnings
from innerloop.training.state import TrainState


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
        if recipe.run.compile == "native" and recipe.inner.checkpoint:
            raise UserError("run.compile=native keeps all inner steps: leave inner.checkpoint=true out.")
    with problems.collect():
        check_followers(recipe.run.tensorboard, recipe.run.track)
    with problems.collect():
        parts = build(provisional(recipe))
        if recipe.run.compile == "native" and parts.network.descend is None:
            raise UserError(
                "run.compile=native is for model.kind=conv4, and mlp with biases and a piecewise linear "
                "activation (relu, leaky_relu, linear): leave it out."
            )
        modes = IMAGE_MODES if recipe.model.kind == "conv4" else ("vmap",)
        if recipe.run.compile == "native" and recipe.run.execution not in ("auto", *modes):
            wanted = " or ".join(modes)
            raise UserError(f"run.compile=native needs run.execution={wanted}, or leave that out.")
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


def finish(run: Path, reason: str | None = None, **more: Any) -> None:
    """Writes into the manifest that a run is finished, why if that was before its last step, and ``more``."""
    update_manifest(run, status="finished", reason=reason, **more)


@contextmanager
def timed(seconds: dict[str, float], what: str) -> Iterator[None]:
    """Adds what the block takes to ``seconds``; a decorator, too."""
    began = time.perf_counter()
    try:
        yield
    finally:
        seconds[what] = seconds.get(what, 0.0) + time.perf_counter() - began


def training_notes(recipe: Recipe, run: Path, step: int) -> list[str]:
    """What is to be said of a recipe before it is trained from a step on."""
    before = read_manifest(run).get("ranks", 1) if step else None
    return [*rate_warnings(recipe), *ranks_notes(recipe, before), *seen_notes(recipe)]


class RunRecorder:
    """Where a training tells how it goes: progress bar, the run's metrics and checkpoints, its tracker."""

    def __init__(self, parts: Parts, run: Path, bar: Progress, heed: Slowdown) -> None:
        recipe = parts.recipe
        self._run, self._bar, self._rate, self._score = run, bar, recipe.inner.lr, score_name(parts.loss)
        known = _tracked(recipe, run, bar.line)
        self._metrics = MetricsWriter(run / "metrics.jsonl", recipe.run.tensorboard, known)
        self._own: dict[str, float] = {}
        self._begun, self._heed = False, heed

    def __enter__(self) -> RunRecorder:
        self._metrics.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._metrics.__exit__(*error)

    def tell(self, step: int, loss: float, seconds: float) -> Plan | None:
        """Shows every step, whether its record is kept or not: some take minutes."""
        if not self._begun:
            self._bar.begin(step)
            self._begun = True
        self._bar.update(step, loss=loss, **self._own)
        return self._heed(seconds)

    def log(self, record: dict[str, Any]) -> None:
        """Shows a record, and writes it to the run's metrics."""
        if "validation" in record:
            record = {**record, "score": self._score}
            self._bar.line(f"step {record['step']}: validation {self._score} {validation_words(record)}")
        else:
            own = {n: v for n, v in record.items() if n.startswith(OWN_PREFIX)}
            self._own.update({n.removeprefix(OWN_PREFIX): v for n, v in own.items()})
        self._metrics.write(record)

    def save(self, snapshot: TrainState, tags: tuple[str, ...]) -> None:
        """Keeps a checkpoint."""
        scalars = {**snapshot.scalars(), "inner_lr": self._rate}
        save_checkpoint(self._run, snapshot.step, snapshot.tensors(), scalars, tags)

    def finish(self, evaluation: Judged, step: int) -> None:
        """Tells a tracker of the test: the score and its interval."""
        scores = {f"test/{evaluation.score}": evaluation.mean, "test/ci95": evaluation.ci95}
        self._metrics.tell({"step": step, **scores})


def _tracked(recipe: Recipe, run: Path, say: Callable[[str], None]) -> TrackerRun | None:
    """The run as a tracker knows it, None without one; the manifest keeps the name for a resume elsewhere."""
    by, project = recipe.run.track, recipe.run.project
    if by == NO_TRACKER:
        return None
    before = read_manifest(run).get("tracked")
    known = before or {"by": by, "project": project, "name": f"{run.parent.name}-{run.name}"}
    if before is None:
        update_manifest(run, tracked=known)
    return TrackerRun(by, project, str(known["name"]), recipe.model_dump(), run, before is not None, say)
