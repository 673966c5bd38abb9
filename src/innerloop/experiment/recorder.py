"""What is kept of a training while it goes on: its metrics and checkpoints, and what a tracker is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from innerloop.core.losses import score_name
from innerloop.experiment.fitting import validation_words
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.results import Judged
from innerloop.learners.base import OWN_PREFIX
from innerloop.runs.checkpoints import save_checkpoint
from innerloop.runs.manifest import read_manifest, update_manifest
from innerloop.runs.metrics import MetricsWriter
from innerloop.runs.progress import Progress
from innerloop.runs.tracking import NO_TRACKER, TrackerRun
from innerloop.training.state import TrainState


class RunRecorder:
    """Where a training tells how it goes: progress bar, the run's metrics and checkpoints, its tracker."""

    def __init__(self, parts: Parts, run: Path, bar: Progress, heed: Callable[[float], None]) -> None:
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

    def tell(self, step: int, loss: float, seconds: float) -> None:
        """Shows every step, whether its record is kept or not: some take minutes."""
        if not self._begun:
            self._bar.begin(step)
            self._begun = True
        self._bar.update(step, loss=loss, **self._own)
        self._heed(seconds)

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
