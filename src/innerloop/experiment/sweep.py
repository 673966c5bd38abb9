"""A grid of runs: cores divided among them, resumable, one table with intervals and paired differences."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from innerloop.core.children import ends_with_parent, python_command
from innerloop.core.cores import available_cores
from innerloop.core.errors import UserError
from innerloop.core.place import user_path
from innerloop.experiment.grid import Cell, make_cells, unread_in
from innerloop.experiment.sweep_table import SweptRun, table_of
from innerloop.experiment.words import recipe_words
from innerloop.recipes.library import read_recipe
from innerloop.recipes.protocols import own_evaluation
from innerloop.recipes.settings import read_toml, recipe_to_toml
from innerloop.recipes.told import told_episodes
from innerloop.recipes.trust import foreign_code
from innerloop.runs.directory import RECIPE, list_runs
from innerloop.runs.files import read_json, write_text_atomic
from innerloop.runs.manifest import read_manifest
from innerloop.runs.progress import progress as show_progress

DIVERGED = "diverged"
"""Entry of a manifest, and what a sweep calls a run whose numbers were not finite."""


@recipe_words()
def sweep(
    recipe_source: str,
    assignments: list[str],
    *,
    jobs: int | None = None,
    trust: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Trains every combination of the listed values; finished runs are kept, interrupted ones resumed.

    Args:
        recipe_source: a recipe's name or file.
        assignments: ``key=value``, where lists are swept.
        jobs: runs at a time; by default as many as there are cores. Each gets its share of the cores.
        trust: whether code that the recipe's file names may be imported.
        progress: whether to show progress on standard error.

    Returns:
        ``folder``, ``runs``, ``table`` and ``notes``.
    """
    cells = make_cells(recipe_source, assignments, trust)
    notes = unread_in(cells, assignments)
    jobs = max(1, min(jobs or available_cores(), len(cells)))
    share = max(1, available_cores() // jobs)
    base = cells[0].recipe
    digest = hashlib.sha256(repr([(c.label, recipe_to_toml(c.recipe)) for c in cells]).encode()).hexdigest()[
        :8
    ]
    folder = user_path(base.run.folder) / f"sweep-{base.name}-{digest}"
    done = itertools.count(1)
    running: set[subprocess.Popen[str]] = set()
    lock = threading.Lock()
    with show_progress(len(cells), f"sweep {base.name}", progress, unit="runs") as bar:
        about = f"{len(cells)} runs in {folder}, {jobs} at a time with {share} core(s) each"
        bar.line("\n".join([about, *(f"warning: {note}" for note in notes)]))

        def one(cell: Cell) -> Path:
            run = _run_cell(cell, folder, share, bar.line, running)
            with lock:
                bar.update(next(done))
            return run

        with ThreadPoolExecutor(jobs) as pool:
            futures = [pool.submit(one, cell) for cell in cells]
            try:
                runs = [future.result() for future in futures]
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    _stop(running)
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    rows = table_of([_judged(cell.settings, run) for cell, run in zip(cells, runs, strict=True)])
    if all(row["mean"] is None for row in rows):
        raise UserError(
            f"none of the {len(runs)} runs in {folder} has a finite score: sweep over smaller rates."
        )
    return {"folder": str(folder), "runs": [str(run) for run in runs], "table": rows, "notes": notes}


def _stop(running: set[subprocess.Popen[str]], grace: float = 2.0) -> None:
    """Ends the runs that are under way; each keeps a checkpoint.

    Ctrl-C reaches them by itself, a signal to this process alone does not: those that have not noticed after
    ``grace`` seconds are told.
    """
    deadline = time.monotonic() + grace
    for child in list(running):
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.terminate()


def _run_cell(
    cell: Cell, folder: Path, share: int, say: Callable[[str], None], running: set[subprocess.Popen[str]]
) -> Path:
    """Trains, resumes, or finds finished one run, in a process of its own."""
    earlier = list_runs_of(folder, cell.label)
    if earlier and read_status(earlier[-1]) in ("finished", DIVERGED):
        say(f"{cell.label}: {read_status(earlier[-1])} before")
        return earlier[-1]
    environment = {**os.environ, "OMP_NUM_THREADS": str(share), **ends_with_parent()}
    if earlier:
        command = ["resume", str(earlier[-1])]
    else:
        run = cell.recipe.run.model_copy(update={"folder": str(folder), "threads": share})
        recipe = cell.recipe.model_copy(update={"name": cell.label, "run": run})
        path = folder / "cells" / f"{cell.label}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomic(path, recipe_to_toml(recipe))
        command = ["train", str(path)]
    if _passes_trust(cell, earlier):
        command.append("--trust")
    say(f"{cell.label}: {command[0]}")
    with subprocess.Popen(
        python_command("-m", "innerloop", *command, "--json"),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        running.add(child)
        out, errors = child.communicate()
        running.discard(child)
    if child.returncode:
        made = list_runs_of(folder, cell.label)
        if made and read_status(made[-1]) == DIVERGED:
            say(f"{cell.label}: {read_manifest(made[-1])['reason']}")
            return made[-1]  # a row of the table: the other runs go on
        last = (errors.strip().splitlines() or ["no message"])[-1]
        raise UserError(
            f"{cell.label} failed ({last}). The other runs are kept: run the same sweep again to go on."
        )
    return Path(json.loads(out.strip().splitlines()[-1])["run"])


def _passes_trust(cell: Cell, earlier: list[Path]) -> bool:
    """Whether the child may import what its file names: code that we were told to trust, and no other.

    That of the cell was typed or trusted here. A run that lies in the folder already may name anything.
    """
    named = foreign_code(cell.recipe)
    return bool(named) and (not earlier or foreign_code(read_recipe(str(earlier[-1]))) == named)


def list_runs_of(folder: Path, label: str) -> list[Path]:
    """Runs of one point of the grid, oldest first."""
    return [run for run in list_runs(folder) if run.parent.name == label] if folder.is_dir() else []


def read_status(run: Path) -> str:
    """How a run ended; ``diverged`` if its numbers were not finite, ``interrupted`` if it never said."""
    try:
        manifest = read_manifest(run)
        return DIVERGED if manifest.get(DIVERGED) else str(manifest["status"])
    except UserError:
        return "interrupted"


def _judged(settings: dict[str, Any], run: Path) -> SweptRun:
    """The evaluation of a run by its recipe's own protocol; without a mean if it diverged."""
    recipe = read_toml((run / RECIPE).read_text(encoding="utf-8"), str(run))
    files = sorted((run / "eval").glob("*.json"), key=lambda path: path.stat().st_mtime)
    found, own = own_evaluation(recipe, [read_json(file) for file in files])
    if found is not None and own:
        return SweptRun(settings, found, told_episodes(recipe, found, read_manifest(run)))
    if read_status(run) == DIVERGED:
        loss = recipe["outer"].get("loss") or recipe["inner"]["loss"]
        score = "accuracy" if loss.startswith("cross-entropy") else "mse"
        return SweptRun(settings, {"score": score, "mean": None, "ci95": None, "scores": []}, None)
    raise UserError(f"{run} has no evaluation by its own protocol: `innerloop eval {run}` makes one.")
