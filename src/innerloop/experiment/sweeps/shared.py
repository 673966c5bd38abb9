"""A process that works on a shared sweep: takes runs that nobody works on until there are none left."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from innerloop.core.cores import available_cores
from innerloop.experiment.sweeps.runs import (
    DIVERGED,
    PRUNED,
    PULSE,
    Child,
    FailedRunError,
    InterruptedRunError,
    best_validation,
    is_worked_on,
    list_runs_of,
    mark_pruned,
    read_status,
    run_cell,
    score_of,
    stop,
    validations,
)
from innerloop.experiment.sweeps.study import Ended, Piece, SharedStudy
from innerloop.experiment.words import recipe_words
from innerloop.runs.manifest import read_manifest
from innerloop.runs.progress import Progress
from innerloop.runs.progress import progress as show_progress

POLL = 1.0
"""Seconds between looks at what other processes have left."""


class Team(NamedTuple):
    """How a process works on a sweep: this many runs at a time, each with this many cores."""

    jobs: int
    share: int
    prune: bool


def work_on(study: SharedStudy, jobs: int | None, prune: bool, notes: list[str], show: bool) -> list[Ended]:
    """Works until every run of the study has come to its end, here or elsewhere; gives all of them."""
    study.fill()
    left, ended = len(study.unfinished()), len(study.ended())
    jobs = max(1, min(jobs or available_cores(), left))
    share = max(1, available_cores() // jobs)
    with show_progress(left + ended, study.name, show, unit="runs", start=ended) as bar:
        about = (
            f"{left + ended} runs in {study.folder}, {left} to do, {jobs} at a time with {share} core(s) each"
        )
        bar.line("\n".join([about, *(f"warning: {note}" for note in notes)]))
        worker = _Worker(study, Team(jobs, share, prune), bar)
        with ThreadPoolExecutor(jobs) as pool:
            futures = [pool.submit(worker.work) for _ in range(jobs)]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException as error:
                worker.stopping.set()
                if isinstance(error, KeyboardInterrupt):
                    stop(worker.running)
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    return study.ended()


class _Worker:
    """What the threads of this process have in common; each carries out one run at a time."""

    def __init__(self, study: SharedStudy, team: Team, bar: Progress) -> None:
        self.study, self.team, self.bar = study, team, bar
        self.running: set[Child] = set()
        self.stopping = threading.Event()
        self._own: set[int] = set()
        self._said = ""

    @recipe_words()
    def work(self) -> None:
        """Carries out runs until none is left that another process may yet leave to this one."""
        while not self.stopping.is_set():
            piece = self.study.take()
            if piece is not None:
                self._own.add(piece.number)
                with piece.claim:
                    self._carry_out(piece)
                self._own.discard(piece.number)
                self.bar.update(len(self.study.ended()))
                continue
            others = [number for number in self.study.unfinished() if number not in self._own]
            if not others:
                return
            self._say_waiting(others)
            self.stopping.wait(POLL)

    def _say_waiting(self, numbers: list[int]) -> None:
        holders = sorted({self.study.claims.holder(f"trial-{number}") for number in numbers})
        text = f"waiting for {len(numbers)} run(s) of {', '.join(holders)}"
        if text != self._said:
            self._said = text
            self.bar.line(text)

    def _carry_out(self, piece: Piece) -> None:
        watch = _Watch(self.study, piece, self.team.prune)
        try:
            self._wait_for_earlier(piece)
            run = run_cell(piece.cell, self.study.folder, self.team.share, self.bar.line, self.running, watch)
        except (FailedRunError, InterruptedRunError) as error:
            if watch.lost:
                self.bar.line(
                    f"{piece.cell.label}: this process was silent for too long, another has taken over"
                )
                return
            if watch.pruned and isinstance(error, InterruptedRunError):
                run = list_runs_of(self.study.folder, piece.cell.label)[-1]
                mark_pruned(run, watch.pruned)
                self.bar.line(f"{piece.cell.label}: {watch.pruned}")
            else:
                if isinstance(error, FailedRunError):
                    self.study.fail(piece, error.reason)
                raise
        self._tell(piece, run)

    def _wait_for_earlier(self, piece: Piece) -> None:
        """A process that was killed leaves a run that finishes its step; nobody else may write meanwhile."""
        runs, said = list_runs_of(self.study.folder, piece.cell.label), False
        while runs and is_worked_on(runs[-1]):
            if not said:
                self.bar.line(f"{piece.cell.label}: waiting for the process that still works on it")
            said = True
            if self.stopping.wait(PULSE):
                raise InterruptedRunError(f"{piece.cell.label} is being worked on by another process.")

    def _tell(self, piece: Piece, run: Path) -> None:
        status = read_status(run)
        self.study.report(piece, validations(run))
        lost = status in (DIVERGED, PRUNED)
        value = None if lost else best_validation(run, score_of(piece.cell.recipe))
        reason = str(read_manifest(run).get("reason") or status) if lost else ""
        self.study.end(piece, run.relative_to(self.study.folder.parent).as_posix(), value, reason)


class _Watch:
    """Looks at a run that is under way: reports its validations, and ends it where it is not to go on."""

    def __init__(self, study: SharedStudy, piece: Piece, prune: bool) -> None:
        self.study, self.piece, self.prune = study, piece, prune
        self.lost = False
        self.pruned = ""
        self._known = 0

    def __call__(self, child: Child) -> None:
        """Called now and then while the run is under way."""
        if self.piece.claim.lost:
            self.lost = True
            child.kill()  # at once and without a checkpoint: another process writes this run
            return
        with contextlib.suppress(OSError):  # a network disk that does not answer: there is a next time
            self._look(child)

    def _look(self, child: Child) -> None:
        runs = list_runs_of(self.study.folder, self.piece.cell.label)
        so_far = validations(runs[-1]) if runs else []
        if not so_far or len(so_far) == self._known or self.pruned:
            return
        self._known = len(so_far)
        self.study.report(self.piece, so_far)
        last = so_far[-1]
        ends = self.piece.cell.recipe.outer.steps
        if self.prune and last.step < ends and self.study.clearly_worse(self.piece, so_far):
            self.pruned = (
                f"pruned at step {last.step} of {ends}: validation {last.mean:.4g} ± {last.ci95:.2g} is "
                "worse than the median of finished runs; `innerloop resume` continues it"
            )
            child.terminate()
