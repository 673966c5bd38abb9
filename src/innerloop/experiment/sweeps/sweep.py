"""Many runs: of a grid or drawn from ranges, on this machine or on a cluster, with one table of them."""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.core.errors import Problems, UserError, did_you_mean
from innerloop.core.files import write_json_atomic
from innerloop.core.paths import user_path
from innerloop.core.resources import available_cores
from innerloop.experiment.messages import recipe_words
from innerloop.experiment.recipe.settings import recipe_to_toml
from innerloop.experiment.sweeps.grid import (
    Cell,
    SweepSpace,
    described,
    make_cells,
    make_space,
    sweep_name,
    unread_in,
)
from innerloop.experiment.sweeps.runs import (
    DIVERGED,
    PRUNED,
    PULSE,
    STOPS,
    RunEnd,
    RunJob,
    best_validation,
    carry_out,
    has_ended,
    is_worked_on,
    job_of,
    judged,
    list_runs_of,
    mark_pruned,
    read_status,
    score_of,
    stop_run,
    validations,
)
from innerloop.experiment.sweeps.study import SAMPLERS, Study, keep_draws, kept_draws, optuna_problem
from innerloop.experiment.sweeps.table import SweepResult, check_scores, table_of
from innerloop.runs.executors import LOOK, as_finished, open_executor, slots
from innerloop.runs.manifest import read_manifest
from innerloop.runs.progress import Progress
from innerloop.runs.progress import progress as show_progress

ON_PAGE = 24
"""Runs on the page of a sweep, the best ones: more make it slow to open."""

RESULT = "sweep.json"

CHECKPOINTS = 30.0
"""Seconds that runs have to save a checkpoint after an interrupt."""


class SweepOptions(NamedTuple):
    """How a sweep is carried out: arguments of :func:`sweep`."""

    jobs: int | None
    cluster: str | None
    trials: int | None
    sampler: str
    prune: bool
    show: bool


@recipe_words()
def sweep(
    recipe_source: str,
    assignments: list[str],
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    trust: bool = False,
    progress: bool = True,
    trials: int | None = None,
    sampler: str | None = None,
    prune: bool = False,
) -> SweepResult:
    """Trains every combination of the listed values, or this many runs that are drawn from ranges.

    Finished runs are kept, interrupted ones resumed: the same call goes on where an earlier one was.

    Args:
        recipe_source: a recipe's name or file.
        assignments: ``key=value``, where lists are swept, and ranges such as ``log(1e-3,1)`` are drawn from.
        jobs: runs at a time; by default as many as there are cores, each with its share of them. With
            ``cluster="slurm"``, how many Slurm jobs are asked for.
        cluster: a Dask scheduler whose workers train (``tcp://host:8786``, or its file), or ``slurm``.
        trust: whether code that the recipe's file names may be imported.
        progress: whether to show progress on standard error.
        trials: how many runs are drawn from ranges and lists; every combination of the lists if omitted.
        sampler: how they are drawn: ``tpe`` (the default) or ``random``.
        prune: whether a run that is clearly worse than others at a validation is stopped.

    Raises:
        UserError: with a line for every mistake; or a run failed.
    """
    options = SweepOptions(jobs, cluster, trials, sampler or SAMPLERS[0], prune, progress)
    problems = _option_problems(options, sampler)
    if trials is None:
        cells = make_cells(recipe_source, assignments, trust, problems)
        space = SweepSpace(cells[0].recipe, _values(cells), {})
        about: object = described(cells)
    else:
        space, cells = make_space(recipe_source, assignments, trust, problems)
        ranges = [list(space.choices.items()), list(space.ranges.items())]
        about = [recipe_to_toml(space.base), *ranges, options.sampler]
    name = sweep_name(space.base.name, about)
    notes = unread_in(cells, assignments)
    study = _study(name, space, cells, options)
    leader = _Leader(user_path(space.base.run.folder) / name, space, study, options)
    return leader.lead(cells if trials is None else None, notes)


def _option_problems(options: SweepOptions, sampler: str | None) -> Problems:
    """What is wrong with the options, whatever the settings are."""
    problems = Problems()
    if options.trials is not None and options.trials < 1:
        problems.add(f"--trials {options.trials} draws nothing: give at least 1.")
    if options.sampler not in SAMPLERS:
        problems.add(
            f"--sampler is {' or '.join(SAMPLERS)}, not '{sampler}'{did_you_mean(options.sampler, SAMPLERS)}."
        )
    elif sampler is not None and options.trials is None:
        problems.add("--sampler says how runs are drawn: also say how many, such as --trials 20.")
    if options.trials is not None or options.prune:
        problems.add(*filter(None, [optuna_problem()]))
    if options.cluster not in (None, "slurm") and options.jobs is not None:
        problems.add("--jobs counts runs of this machine, or Slurm jobs: a cluster has workers of its own.")
    return problems


def _values(cells: list[Cell]) -> dict[str, list[Any]]:
    """The lists that a grid was made of."""
    return {
        key: list({repr(cell.settings[key]): cell.settings[key] for cell in cells}.values())
        for key in cells[0].settings
    }


def _study(name: str, space: SweepSpace, cells: list[Cell], options: SweepOptions) -> Study | None:
    if options.trials is None and not options.prune:
        return None
    scores = sorted({score_of(cell.recipe) for cell in cells})
    if len(scores) > 1:
        raise UserError(f"some runs are judged by {' and some by '.join(scores)}: sweep them apart.")
    return Study(name, scores[0], space, options.sampler)


class _Leader:
    """The process that leads a sweep: it draws, hands runs out, looks at them on their way, and tells."""

    def __init__(self, folder: Path, space: SweepSpace, study: Study | None, options: SweepOptions) -> None:
        self.folder, self.space, self.study, self.options = folder, space, study, options
        self._handed: list[tuple[int, Cell]] = []
        self._running: dict[int, Cell] = {}
        self._ended: dict[int, tuple[Cell, Path]] = {}
        self._left_out = 0
        self._pruned: dict[int, str] = {}
        self._seen: dict[int, int] = {}
        self._looked = time.monotonic()
        self._lost: dict[int, UserError] = {}

    def lead(self, cells: list[Cell] | None, notes: list[str]) -> SweepResult:
        """Carries the sweep out: the runs of a grid, or drawn ones."""
        total = (self.options.trials or 0) if cells is None else len(cells)
        jobs, share, where = self._shares(total)
        try:
            with (
                open_executor(jobs, self.options.cluster, separate=True) as executor,
                show_progress(total, f"sweep {self.space.base.name}", self.options.show, unit="runs") as bar,
            ):
                about = f"{total} runs in {self.folder}, {where}"
                bar.line("\n".join([about, *(f"warning: {note}" for note in notes)]))
                shutil.rmtree(self.folder / STOPS, ignore_errors=True)
                todo = self._jobs(self._drawn() if cells is None else self._listed(cells), share, bar)
                most = partial(slots, executor)
                done = as_finished(executor, carry_out, todo, most=most, left=self._look, say=bar.line)
                for place, end in done:
                    self._take(*self._handed[place], end, bar)
        except KeyboardInterrupt:
            self._await_checkpoints()
            raise
        if self._lost:
            raise self._lost[min(self._lost)]
        return self._result(notes, drawn=cells is None)

    def _shares(self, total: int) -> tuple[int | None, int, str]:
        """How many runs at a time, with how many cores each, and that in words."""
        cluster = self.options.cluster
        if cluster is not None:
            share = self.space.base.run.threads or 1
            return self.options.jobs, share, f"by the workers of {cluster} with {share} core(s) each"
        jobs = max(1, min(self.options.jobs or available_cores(), total))
        share = max(1, available_cores() // jobs)
        return jobs, share, f"{jobs} at a time with {share} core(s) each"

    def _listed(self, cells: list[Cell]) -> Iterator[tuple[int, Cell]]:
        """The runs of a grid, with their numbers."""
        for number, cell in enumerate(cells):
            if self.study is not None:
                self.study.add(cell.settings)
            yield number, cell

    def _drawn(self) -> Iterator[tuple[int, Cell]]:
        """The runs of a sweep that draws them: those that are kept, then new ones as there is room."""
        assert self.study is not None
        draws = kept_draws(self.folder, self.space)
        for number in range(self.options.trials or 0):
            if number < len(draws):
                self.study.add(draws[number])
            else:
                draws.append(self.study.add())
                keep_draws(self.folder, draws)
            try:
                cell = self.space.cell(number, draws[number])
            except UserError:  # values that do not go together: a point that is left out
                self.study.end(number, None)
                self._left_out += 1
                continue
            yield number, cell

    def _jobs(self, points: Iterator[tuple[int, Cell]], share: int, bar: Progress) -> Iterator[RunJob]:
        """What is to be trained; runs that have ended before are only told."""
        for number, cell in points:
            earlier = list_runs_of(self.folder, cell.label)
            if has_ended(earlier):
                bar.line(f"{cell.label}: {read_status(earlier[-1])} before")
                self._tell(number, cell, earlier[-1])
                bar.update(self._done(), True)
                continue
            if self._lost:
                return
            bar.line(f"{cell.label}: {'resume' if earlier else 'train'}")
            self._handed.append((number, cell))
            self._running[number] = cell
            yield job_of(cell, self.folder, share)

    def _done(self) -> int:
        return len(self._ended) + self._left_out

    def _take(self, number: int, cell: Cell, end: RunEnd, bar: Progress) -> None:
        """A run has come to its end."""
        del self._running[number]
        if end.failed:
            self._lost[number] = UserError(
                f"{cell.label} failed ({end.failed}). The other runs are kept: run the same sweep again to "
                "go on."
            )
            return
        reason = self._pruned.get(number, "")
        if end.run is None or (end.interrupted and not reason):
            self._lost[number] = UserError(
                f"{cell.label} was interrupted: run the same sweep again to go on."
            )
            return
        run = Path(end.run)
        if end.interrupted:
            mark_pruned(run, reason)
        if read_status(run) in (DIVERGED, PRUNED):
            bar.line(f"{cell.label}: {read_manifest(run)['reason']}")
        self._tell(number, cell, run)
        bar.update(self._done())

    def _tell(self, number: int, cell: Cell, run: Path) -> None:
        self._ended[number] = cell, run
        if self.study is None:
            return
        self.study.report(number, validations(run))
        lost = read_status(run) in (DIVERGED, PRUNED)
        self.study.end(number, None if lost else best_validation(run, score_of(cell.recipe)))

    def _look(self) -> float:
        """Looks at the runs that are under way now and then, and stops those that are clearly worse."""
        now = time.monotonic()
        if self.study is not None and now - self._looked >= PULSE:
            self._looked = now
            for number, cell in self._running.items():
                with contextlib.suppress(OSError):  # a disk that does not answer: there is a next time
                    self._look_at(self.study, number, cell)
        return math.inf

    def _look_at(self, study: Study, number: int, cell: Cell) -> None:
        runs = list_runs_of(self.folder, cell.label)
        so_far = validations(runs[-1]) if runs else []
        if len(so_far) <= self._seen.get(number, 0) or number in self._pruned:
            return
        self._seen[number] = len(so_far)
        study.report(number, so_far)
        last, ends = so_far[-1], cell.recipe.outer.steps
        if self.options.prune and last.step < ends and study.clearly_worse(number, so_far):
            self._pruned[number] = (
                f"pruned at step {last.step} of {ends}: validation {last.mean:.4g} ± {last.ci95:.2g} is "
                "worse than the median of finished runs; `innerloop resume` continues it"
            )
            stop_run(self.folder, cell.label)

    def _await_checkpoints(self) -> None:
        """After an interrupt runs notice that their worker is gone, and save a checkpoint."""
        until = time.monotonic() + CHECKPOINTS
        for cell in self._running.values():
            runs = list_runs_of(self.folder, cell.label)
            while runs and is_worked_on(runs[-1]) and time.monotonic() < until:
                time.sleep(LOOK)

    def _result(self, notes: list[str], *, drawn: bool) -> SweepResult:
        """A grid's table; drawn runs are ordered by validation, with a page of the best."""
        whole = [self._ended[number] for number in sorted(self._ended)]
        if not whole:
            raise UserError("no drawn values go together: give ranges and lists whose combinations do.")
        rows = table_of([judged(cell.settings, run) for cell, run in whole], by_validation=drawn)
        check_scores(rows, len(whole), self.folder)
        if not drawn:
            return SweepResult(self.folder, [run for _, run in whole], rows, notes)
        from innerloop.experiment.pages import write_report

        order = [row.settings for row in rows]
        runs = [run for cell, run in sorted(whole, key=lambda each: order.index(each[0].settings))]
        page = write_report(runs[:ON_PAGE], self.folder / "report.html")
        result = SweepResult(self.folder, runs, rows, notes, page)
        write_json_atomic(self.folder / RESULT, result.as_dict())
        return result
