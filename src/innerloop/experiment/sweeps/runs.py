"""One run of a sweep: trained, resumed or found finished in a process of its own, and what came of it."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.core.child_processes import ends_with_parent, python_command
from innerloop.core.errors import UserError
from innerloop.core.files import read_json, write_text_atomic
from innerloop.evaluation.episodes import drawn_episodes
from innerloop.experiment.recipe.library import read_recipe
from innerloop.experiment.recipe.protocols import own_evaluation
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import read_toml, recipe_to_toml
from innerloop.experiment.recipe.trust import foreign_code
from innerloop.experiment.sweeps.grid import Cell
from innerloop.experiment.sweeps.table import SweepRun
from innerloop.runs.directory import RECIPE, list_runs
from innerloop.runs.manifest import now, read_manifest, update_manifest
from innerloop.runs.metrics import read_metrics
from innerloop.runs.process import sole_writer

DIVERGED = "diverged"
"""Entry of a manifest, and what a sweep calls a run whose numbers were not finite."""

PRUNED = "pruned"
"""Status of a run that was clearly worse than others at a validation, and stopped."""

ENDED = ("finished", DIVERGED, PRUNED)
"""Runs that a sweep does not touch again."""

STOPS = "stops"
"""In the folder of a sweep: a file for every run that is told to stop."""

PULSE = 0.5
"""Seconds between looks at a run that is under way."""

_INTERRUPTED = 130


class RunJob(NamedTuple):
    """One run as plain data for a worker on any machine; ``named`` is outside code that it may import."""

    label: str
    file: str
    folder: str
    share: int
    named: dict[str, str]


class RunEnd(NamedTuple):
    """How a run ended: its directory, or why there is no result."""

    run: str | None
    failed: str = ""
    interrupted: bool = False


class Validated(NamedTuple):
    """A validation of a run on its way."""

    step: int
    mean: float
    ci95: float


def job_of(cell: Cell, folder: Path, share: int) -> RunJob:
    """The run of a cell as a job; writes its recipe into the folder of the sweep."""
    run = cell.recipe.run.model_copy(update={"folder": str(folder), "threads": share})
    recipe = cell.recipe.model_copy(update={"name": cell.label, "run": run})
    path = folder / "cells" / f"{cell.label}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomic(path, recipe_to_toml(recipe))
    named = {key: str(name) for key, name in foreign_code(cell.recipe).items()}
    return RunJob(cell.label, str(path), str(folder), share, named)


def carry_out(job: RunJob) -> RunEnd:
    """Trains or resumes one run in a process of its own, which ends with this one; or finds it finished."""
    folder = Path(job.folder)
    earlier = list_runs_of(folder, job.label)
    # a process that was killed leaves a run that finishes its step; nobody else may write meanwhile
    while earlier and is_worked_on(earlier[-1]):
        time.sleep(PULSE)
    if has_ended(earlier):
        return RunEnd(str(earlier[-1]))
    command = ["resume", str(earlier[-1])] if earlier else ["train", job.file]
    if _passes_trust(job, earlier):
        command.append("--trust")
    with subprocess.Popen(
        python_command("-m", "innerloop", *command, "--json"),
        env={**os.environ, "OMP_NUM_THREADS": str(job.share), **ends_with_parent()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        out, errors = _awaited(child, folder / STOPS / job.label)
    if not child.returncode:
        return RunEnd(json.loads(out.strip().splitlines()[-1])["run"])
    made = list_runs_of(folder, job.label)
    if made and read_status(made[-1]) == DIVERGED:
        return RunEnd(str(made[-1]))  # a row of the table: the other runs go on
    if child.returncode == _INTERRUPTED:
        return RunEnd(str(made[-1]) if made else None, interrupted=True)
    silent = f"killed by {signal.Signals(-child.returncode).name}" if child.returncode < 0 else "no message"
    return RunEnd(None, (errors.strip().splitlines() or [silent])[-1])


def _awaited(child: subprocess.Popen[str], stop: Path) -> tuple[str, str]:
    """What a run has written, at its end; it is told to end, with a checkpoint, once there is a stop file."""
    told = False
    while True:
        try:
            return child.communicate(timeout=PULSE)
        except subprocess.TimeoutExpired:
            if not told and stop.exists():
                told = True
                child.terminate()


def stop_run(folder: Path, label: str) -> None:
    """Tells a run that is under way, wherever it is, to save a checkpoint and end."""
    (folder / STOPS).mkdir(exist_ok=True)
    (folder / STOPS / label).touch()


def _passes_trust(job: RunJob, earlier: list[Path]) -> bool:
    """Whether the process may import what its file names: what was trusted here, not what a run names."""
    return bool(job.named) and (not earlier or foreign_code(read_recipe(str(earlier[-1]))) == job.named)


def list_runs_of(folder: Path, label: str) -> list[Path]:
    """Runs of one point of the grid, oldest first."""
    return [run for run in list_runs(folder) if run.parent.name == label] if folder.is_dir() else []


def has_ended(runs: list[Path]) -> bool:
    """Whether the newest of these runs is one that a sweep does not touch again."""
    return bool(runs) and read_status(runs[-1]) in ENDED


def read_status(run: Path) -> str:
    """How a run ended; ``diverged`` if its numbers were not finite, ``interrupted`` if it never said."""
    try:
        manifest = read_manifest(run)
        return DIVERGED if manifest.get(DIVERGED) else str(manifest["status"])
    except UserError:
        return "interrupted"


def is_worked_on(run: Path) -> bool:
    """Whether a process holds the lock of a run: it may outlive the one that started it by a few steps."""
    try:
        with sole_writer(run):
            return False
    except UserError:
        return True


def mark_pruned(run: Path, reason: str) -> None:
    """Writes into a run's manifest that it was stopped because others are better."""
    with sole_writer(run):
        update_manifest(run, status=PRUNED, ended=now(), reason=reason)


def validations(run: Path) -> list[Validated]:
    """The validations of a run so far that are finite, in the order of their steps."""
    try:
        records = read_metrics(run / "metrics.jsonl")
    except (OSError, UserError):
        return []
    by_step = {}
    for record in records:
        step, mean, ci95 = (record.get(key) for key in ("step", "validation", "ci95"))
        if isinstance(step, int) and isinstance(mean, (int, float)) and math.isfinite(mean):
            width = float(ci95) if isinstance(ci95, (int, float)) and math.isfinite(ci95) else 0.0
            by_step[step] = Validated(step, float(mean), width)
    return [by_step[step] for step in sorted(by_step)]


def best_validation(run: Path, score: str) -> float | None:
    """The validation whose weights a run keeps as its best; None without a finite one."""
    means = [each.mean for each in validations(run)]
    return (max(means) if score == "accuracy" else min(means)) if means else None


def score_of(recipe: Recipe) -> str:
    """What a recipe is judged by."""
    return _score(recipe.outer.loss or recipe.inner.loss)


def _score(loss: str) -> str:
    return "accuracy" if loss.startswith("cross-entropy") else "mse"


def judged(settings: dict[str, Any], run: Path) -> SweepRun:
    """The evaluation of a run by its recipe's own protocol; without a mean if it diverged or was pruned."""
    recipe = read_toml((run / RECIPE).read_text(encoding="utf-8"), str(run))
    files = sorted((run / "eval").glob("*.json"), key=lambda path: path.stat().st_mtime)
    own_result, own = own_evaluation(recipe, [read_json(file) for file in files])
    losses = [recipe.get(section, {}).get("loss") for section in ("outer", "inner")]
    score = _score(losses[0] or losses[1] or "mse")
    status, validation = read_status(run), best_validation(run, score)
    if own_result is not None and own:
        drawn = drawn_episodes(own_result)
        return SweepRun(settings, own_result, drawn, validation=validation)
    if status in (DIVERGED, PRUNED):
        evaluation: dict[str, Any] = {"score": score, "mean": None, "ci95": None, "scores": []}
        return SweepRun(settings, evaluation, None, status, validation)
    raise UserError(f"{run} has no evaluation by its own protocol: `innerloop eval {run}` makes one.")
