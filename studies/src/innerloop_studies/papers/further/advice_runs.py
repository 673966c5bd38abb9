"""The runs behind ``advice-race``: every method trained for long on a problem, and a short race of all.

They stand apart from the rows that are made of them, so that finished runs outlive a change of words there.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from innerloop.choose.method_race import race_methods
from innerloop.choose.problem import AdviceProblem, pose_advice
from innerloop.choose.race import LEAST_STEPS, is_beyond_chance
from innerloop.choose.recommend import ahead_of, trained_row
from innerloop.choose.records import Session
from innerloop.choose.request import read_advise
from innerloop.choose.trials import MOST_TIMED, Trial, measure_recipes, run_trial, shorten
from innerloop.runs.progress import Progress, progress
from innerloop_studies.papers.further.rate_runs import content, source

LONG_SEED = 2
"""Of the validation tasks that long training is judged on: the race has seen others."""
REHEARSED = 0.08
"""Share of the time in which a step is timed: schedules need the number of steps beforehand."""


class Case(NamedTuple):
    """A problem: pictures with ways and shots; or a family of tasks of numbers, with no ways."""

    data: str
    ways: int
    shots: int

    def __str__(self) -> str:
        shape = f"{self.ways}-way {self.shots}-shot" if self.ways else f"{self.shots} shots"
        return f"{self.data}, {shape}"

    @property
    def content(self) -> str:
        """What tells two datasets of this name apart."""
        return content(self.data) if self.ways else ""

    def posed(self, seed: int, *items: str) -> AdviceProblem:
        """Methods and tasks."""
        if not self.ways:
            own = [f"tasks.shots={self.shots}", "tasks.queries=10", f"seed={seed}", "backbone=none"]
            return pose_advice(read_advise(self.data, [*own, *items]))
        shape = [f"tasks.ways={self.ways}", f"tasks.shots={self.shots}", "tasks.queries=10", f"seed={seed}"]
        return pose_advice(read_advise(source(self.data), [*shape, "backbone=none", *items]))


class Long(NamedTuple):
    """What a method reached when it was trained for long."""

    score: float | None
    ci95: float | None
    steps: int
    seconds: float


class Raced(NamedTuple):
    """How a short race went."""

    order: list[str]
    decided: bool
    steps: dict[str, int]
    left_out: list[str]
    seconds: float


def long_run(case: Case, method: str, seed: int, seconds: float, episodes: int) -> Long:
    """A method trained for this many seconds of one core: its score on validation tasks, and what it took."""
    problem = Case(*case).posed(seed, f"methods=[{method}]")
    entrant = problem.entrants[0]
    with tempfile.TemporaryDirectory() as folder:

        def trial(name: str, steps: int, judged: int) -> Trial:
            """From the first weights, on a schedule of so many steps."""
            return Trial(
                shorten(entrant.recipe, steps, problem.queries),
                Path(folder) / name,
                name,
                steps,
                judged,
                LONG_SEED,
            )

        timed = [shorten(entrant.recipe, MOST_TIMED, problem.queries)]
        (costs,) = measure_recipes(timed, 1).values()
        tried = run_trial(trial("rehearsal", max(LEAST_STEPS, int(REHEARSED * seconds / costs.step)), 2))
        step = tried.training_seconds / tried.steps if tried.scores else costs.step
        steps = max(LEAST_STEPS, int(seconds / step))
        reached = run_trial(trial("long", steps, episodes))
    return Long(reached.mean, reached.ci95, steps, reached.training_seconds)


def short_race(case: Case, methods: Sequence[str], seed: int, seconds: float) -> Raced:
    """The race of all methods within this many seconds of one core.

    Their order, and whether it was decided.
    """
    problem = Case(*case).posed(seed, f"budget={max(1, round(seconds))}s")
    problem = problem._replace(entrants=[e for e in problem.entrants if e.name in methods])
    with tempfile.TemporaryDirectory() as folder, _session(Path(folder)) as session:
        went = race_methods(problem, session)
        took = session.clock()
    rows = [trained_row(racer, 0) for racer in went.racers]
    gap = ahead_of(rows[0], rows[1], problem.better) if len(rows) > 1 else None
    steps = {row.method: row.steps for row in rows}
    return Raced([row.method for row in rows], is_beyond_chance(gap), steps, went.left_out, took)


@contextmanager
def _session(folder: Path) -> Iterator[Session]:
    """One process, and nothing told."""
    started = time.monotonic()
    silent = Progress(1, "race", 0, None, None, None)
    yield Session(
        folder,
        1,
        0.0,
        lambda: time.monotonic() - started,
        silent.line,
        lambda total, unit: progress(total, "race", False, unit=unit),
    )
