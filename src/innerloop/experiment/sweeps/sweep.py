"""Many runs: of a grid or drawn from ranges, in one process or shared by many, with one table of them."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from innerloop.core.cores import available_cores
from innerloop.core.errors import Problems, did_you_mean
from innerloop.core.place import user_path
from innerloop.experiment.sweeps.grid import (
    Cell,
    SweepSpace,
    described,
    make_cells,
    make_space,
    sweep_name,
    unread_in,
)
from innerloop.experiment.sweeps.journal import optuna_problem
from innerloop.experiment.sweeps.runs import Child, has_ended, judged, list_runs_of, run_cell, stop
from innerloop.experiment.sweeps.study import SAMPLERS
from innerloop.experiment.sweeps.table import SweepResult, check_scores, table_of
from innerloop.experiment.sweeps.together import How, sweep_together
from innerloop.experiment.words import recipe_words
from innerloop.runs.progress import progress as show_progress


@recipe_words()
def sweep(
    recipe_source: str,
    assignments: list[str],
    *,
    jobs: int | None = None,
    trust: bool = False,
    progress: bool = True,
    storage: str | Path | None = None,
    trials: int | None = None,
    sampler: str | None = None,
    prune: bool = False,
) -> SweepResult:
    """Trains every combination of the listed values, or this many runs that are drawn from ranges.

    Finished runs are kept, interrupted ones resumed. With ``storage`` any number of processes on any machines
    that share that folder work on the same sweep; the page on sweeps says how.

    Args:
        recipe_source: a recipe's name or file.
        assignments: ``key=value``, where lists are swept, and ranges such as ``log(1e-3,1)`` are drawn from.
        jobs: runs at a time; by default as many as there are cores. Each gets its share of the cores.
        trust: whether code that the recipe's file names may be imported.
        progress: whether to show progress on standard error.
        storage: a folder that processes share; by default, where runs are drawn, that of the recipe's runs.
        trials: how many runs are drawn from ranges and lists; every combination of the lists if omitted.
        sampler: how they are drawn: ``tpe`` (the default) or ``random``.
        prune: whether a run that is clearly worse than others at a validation is stopped.

    Raises:
        UserError: with a line for every mistake; or a run failed.
    """
    shared = storage is not None or trials is not None
    problems = _option_problems(shared, trials, sampler, prune)
    if trials is None:
        cells = make_cells(recipe_source, assignments, trust, problems)
        space = SweepSpace(cells[0].recipe, _values(cells), {})
    else:
        space, cells = make_space(recipe_source, assignments, trust, problems)
    notes = unread_in(cells, assignments)
    if not shared:
        return _grid_here(cells, notes, jobs, progress)
    where = user_path(space.base.run.folder if storage is None else storage)
    how = How(trials, sampler or SAMPLERS[0], prune, jobs, progress)
    return sweep_together(where, space, cells, notes, how)


def _option_problems(shared: bool, trials: int | None, sampler: str | None, prune: bool) -> Problems:
    """What is wrong with the options, whatever the settings are."""
    problems = Problems()
    if trials is not None and trials < 1:
        problems.add(f"--trials {trials} draws nothing: give at least 1.")
    if sampler is not None and sampler not in SAMPLERS:
        problems.add(
            f"--sampler is {' or '.join(SAMPLERS)}, not '{sampler}'{did_you_mean(sampler, SAMPLERS)}."
        )
    elif sampler is not None and trials is None:
        problems.add("--sampler says how runs are drawn: also say how many, such as --trials 20.")
    if prune and not shared:
        problems.add("--prune compares runs in a shared folder: name it, such as --storage runs.")
    if shared:
        problems.add(*filter(None, [optuna_problem()]))
    return problems


def _values(cells: list[Cell]) -> dict[str, list[Any]]:
    """The lists that a grid was made of."""
    return {
        key: list({repr(cell.settings[key]): cell.settings[key] for cell in cells}.values())
        for key in cells[0].settings
    }


def _grid_here(cells: list[Cell], notes: list[str], jobs: int | None, progress: bool) -> SweepResult:
    """A grid in this process and its children."""
    jobs = max(1, min(jobs or available_cores(), len(cells)))
    share = max(1, available_cores() // jobs)
    base = cells[0].recipe
    folder = user_path(base.run.folder) / sweep_name(base.name, described(cells))
    done = itertools.count(1)
    running: set[Child] = set()
    lock = threading.Lock()
    with show_progress(len(cells), f"sweep {base.name}", progress, unit="runs") as bar:
        about = f"{len(cells)} runs in {folder}, {jobs} at a time with {share} core(s) each"
        bar.line("\n".join([about, *(f"warning: {note}" for note in notes)]))

        def one(cell: Cell) -> Path:
            """Carries one run out, and moves the bar."""
            before = has_ended(list_runs_of(folder, cell.label))
            run = run_cell(cell, folder, share, bar.line, running)
            with lock:
                bar.update(next(done), before)
            return run

        with ThreadPoolExecutor(jobs) as pool:
            futures = [pool.submit(one, cell) for cell in cells]
            try:
                runs = [future.result() for future in futures]
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    stop(running)
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    rows = table_of([judged(cell.settings, run) for cell, run in zip(cells, runs, strict=True)])
    check_scores(rows, len(runs), folder)
    return SweepResult(folder, runs, rows, notes)
