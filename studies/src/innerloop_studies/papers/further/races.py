"""Short races of ``innerloop advise`` beside long training, on pictures and on numbers."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.choose.advice import ahead_of, trained_row
from innerloop.choose.method_race import race_methods
from innerloop.choose.problem import AdviceProblem, pose_advice
from innerloop.choose.race import LEAST_STEPS, is_beyond_chance
from innerloop.choose.request import read_advise
from innerloop.choose.session import Session
from innerloop.choose.trials import MOST_TIMED, Trial, measure_recipes, run_trial, shorten
from innerloop.core.errors import UserError
from innerloop.report.plots.panels import line, panel, panels_figure, points
from innerloop.report.plots.style import INK
from innerloop.runs.progress import Progress, progress
from innerloop_studies.papers.further.rates import content, source
from innerloop_studies.reproduce.rows import Row, row

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


class LongJob(NamedTuple):
    """What :func:`long_run` is given."""

    case: Case
    method: str
    seed: int
    seconds: float
    episodes: int


class RaceJob(NamedTuple):
    """What :func:`short_race` is given."""

    case: Case
    methods: Sequence[str]
    seed: int
    seconds: float


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
            return Trial(
                shorten(entrant.recipe, steps, problem.queries),
                Path(folder) / name,
                name,
                steps,
                judged,
                LONG_SEED,
            )

        short = [shorten(entrant.recipe, MOST_TIMED, problem.queries)]
        (costs,) = measure_recipes(short, 1).values()
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


Regret = Callable[[float, float], float]

SHARE = 0.1
"""Of the time of the long race, that the short one has."""
ENOUGH = 0.8
"""Share of problems on which the first choice must be close to the best."""


class Judged(NamedTuple):
    """A problem: what the race chose, what was best, and how far apart they are after long training."""

    problem: str
    seed: int
    chosen: str
    best: str
    regret: float
    decided: bool
    share: float
    long: dict[str, float]
    order: list[str]


def judged_by(
    case: Case, seed: int, long: Mapping[str, Long], raced: Raced, *, worst: float, regret: Regret
) -> Judged:
    """Holds the first choice of a short race against the best method of a long one."""
    reached = {name: worst if one.score is None else one.score for name, one in long.items()}
    best = min(reached, key=reached.__getitem__) if worst else max(reached, key=reached.__getitem__)
    chosen = next((name for name in raced.order if name in reached), None)
    if chosen is None:
        raise UserError(f"{case}: {'; '.join(raced.left_out)}.")
    whole = sum(one.seconds for one in long.values())
    lost = regret(reached[chosen], reached[best])
    share = raced.seconds / whole
    return Judged(str(case), seed, chosen, best, lost, raced.decided, share, reached, raced.order)


def counted_row(problems: Sequence[Judged]) -> Row:
    """That every problem was decided, however little was trained."""
    what = "every problem has a choice among the methods that were trained for long"
    chosen = sum(one.chosen in one.long for one in problems)
    return row(what, len(problems), chosen, bool(problems) and chosen == len(problems))


def race_rows(
    problems: Sequence[Judged], close: float, what: str, said: str, fails: Collection[str] = ()
) -> list[Row]:
    """Whether first choices are close to the best, races cheap, and leads that were called decided right."""
    near = sum(one.regret <= close for one in problems)
    wrong = [one for one in problems if one.decided and one.regret > close]
    decided = sum(one.decided for one in problems)
    share = statistics.median(one.share for one in problems)
    return [
        counted_row(problems),
        row(
            what,
            f"{ENOUGH:.0%} (our aim)",
            f"{near} of {len(problems)}; {said}",
            near >= ENOUGH * len(problems),
            expected="aim" not in fails,
        ),
        row(
            "the race costs at most a tenth of the long one",
            "0.1 (our aim)",
            f"{share:.3f} at the median",
            share <= SHARE * 1.1,
            expected="cost" not in fails,
        ),
        row(
            "a lead that is called more than chance is right after long training",
            "all (our aim)",
            f"{decided - len(wrong)} of {decided}",
            not wrong,
            expected="decided" not in fails,
        ),
    ]


def race_figure(
    problems: Sequence[Judged], title: str, beside_best: Regret, limits: tuple[float, float] | None = None
) -> Any:
    """What every method reached after long training beside the best one, and what the race chose."""
    places = list(range(len(problems)))

    def heights(names: Sequence[str]) -> list[float]:
        known = [
            (one.long.get(name, math.nan), one.long[one.best])
            for one, name in zip(problems, names, strict=True)
        ]
        return [beside_best(score, best) for score, best in known]

    methods = list(dict.fromkeys(name for one in problems for name in one.long))
    lines = [line(name, places, heights([name] * len(problems)), dots=True) for name in methods]
    chosen = points(places, heights([one.chosen for one in problems]))
    lines.append(line("chosen by the race", [], [], ink=INK, points=chosen))
    words = [one.problem.replace(", 5-way ", "\n").replace(", ", "\n") for one in problems]
    ticks = [text.replace("-quadratic", "-\nquadratic") for text in words]
    only = panel("", title, lines, log_y=limits is not None, limits=limits, ticks=ticks)
    return panels_figure([only], width=11.0, height=4.0)
