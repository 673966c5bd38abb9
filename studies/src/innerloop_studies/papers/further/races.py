"""Short races of ``innerloop advise`` beside long training, on pictures and on numbers."""

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.choose.advice import row_lead, trained_row
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
from innerloop_studies.papers.training import combined
from innerloop_studies.reproduce.parts import compute_parts
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row

LONG_SEED = 2  # of the validation tasks that long training is judged on: the race has seen others
REHEARSED = 0.08  # share of the time in which a step is timed: schedules need the number of steps beforehand


class RaceProblem(NamedTuple):
    """A problem: pictures with ways and shots; or a family of tasks of numbers, with no ways."""

    data: str
    ways: int
    shots: int

    def __str__(self) -> str:
        shape = f"{self.ways}-way {self.shots}-shot" if self.ways else f"{self.shots} shots"
        return f"{self.data}, {shape}"

    def posed(self, seed: int, *items: str) -> AdviceProblem:
        """Methods and tasks."""
        ways = [f"tasks.ways={self.ways}"] * bool(self.ways)
        shape = [*ways, f"tasks.shots={self.shots}", "tasks.queries=10", f"seed={seed}", "backbone=none"]
        return pose_advice(read_advise(source(self.data) if self.ways else self.data, [*shape, *items]))


class LongRun(NamedTuple):
    """What a method reached when it was trained for long."""

    score: float | None
    ci95: float | None
    steps: int
    seconds: float


class ShortRace(NamedTuple):
    """How a short race went."""

    order: list[str]
    decided: bool
    steps: dict[str, int]
    left_out: list[str]
    seconds: float


def long_run(case: RaceProblem, method: str, seed: int, seconds: float, episodes: int) -> LongRun:
    """A method trained for this many seconds of one core: its score on validation tasks, and what it took."""
    problem = RaceProblem(*case).posed(seed, f"methods=[{method}]")
    entrant = problem.entrants[0]
    with tempfile.TemporaryDirectory() as folder:

        def trial(name: str, steps: int, judged: int) -> Trial:
            recipe = shorten(entrant.recipe, steps, problem.queries)
            return Trial(recipe, Path(folder) / name, name, steps, judged, LONG_SEED)

        short = [shorten(entrant.recipe, MOST_TIMED, problem.queries)]
        (costs,) = measure_recipes(short, 1).values()
        tried = run_trial(trial("rehearsal", max(LEAST_STEPS, int(REHEARSED * seconds / costs.step)), 2))
        step = tried.training_seconds / tried.steps if tried.scores else costs.step
        steps = max(LEAST_STEPS, int(seconds / step))
        reached = run_trial(trial("long", steps, episodes))
    return LongRun(reached.mean, reached.ci95, steps, reached.training_seconds)


def short_race(case: RaceProblem, methods: Sequence[str], seed: int, seconds: float) -> ShortRace:
    """The order of methods in a race within this many seconds of one core, and whether it was decided."""
    problem = RaceProblem(*case).posed(seed, f"budget={max(1, round(seconds))}s")
    problem = problem._replace(entrants=[e for e in problem.entrants if e.name in methods])
    with tempfile.TemporaryDirectory() as folder:
        session = _session(Path(folder))
        went = race_methods(problem, session)
        took = session.clock()
    rows = [trained_row(racer, 0) for racer in went.racers]
    gap = row_lead(rows[0], rows[1], problem.better) if len(rows) > 1 else None
    steps = {row.method: row.steps for row in rows}
    return ShortRace([row.method for row in rows], is_beyond_chance(gap), steps, went.left_out, took)


def _session(folder: Path) -> Session:
    """One process, and nothing told."""
    started, silent = time.monotonic(), Progress(1, "race", 0, None, None, None)

    def shown(total: Any, unit: Any) -> Any:
        return progress(total, "race", False, unit=unit)

    return Session(folder, 1, 0.0, lambda: time.monotonic() - started, silent.line, shown)


Regret = Callable[[float, float], float]

SHARE = 0.1  # of the time of the long race, that the short one has
ENOUGH = 0.8  # share of problems on which the first choice must be close to the best


class RaceOutcome(NamedTuple):
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


class Race(NamedTuple):
    """What a study races: seconds, validation tasks and seeds; its network; how far apart scores are."""

    name: str
    version: int
    problems: Sequence[RaceProblem]
    methods: Sequence[str]
    size: tuple[float, int, int]
    network: str
    worst: float
    regret: Regret


def race_study(race: Race, scale: str, say: Say) -> list[RaceOutcome]:
    """Long runs two at a time, then the short races, at ``smoke`` of a minute; every part is kept."""
    name, version, problems, methods, (seconds, episodes, seeds), _, worst, regret = race
    each = {"case": problems, "seed": range(seeds), "method": methods}
    jobs = combined(**each, seconds=[seconds], episodes=[episodes])
    long: dict[tuple[RaceProblem, int], dict[str, LongRun]] = {}
    for job, value in zip(jobs, compute_parts(name, version, long_run, jobs, seen=_seen), strict=True):
        problem, seed, method = job["case"], job["seed"], job["method"]
        run = long.setdefault((problem, seed), {})[method] = LongRun(*value)
        told = "diverged" if run.score is None else f"{run.score:.4g}"
        say(f"{problem}, {method}, seed {seed}: {told} after {run.steps} steps")
    budget = max(SHARE * seconds * len(methods), 60.0 if scale == "smoke" else 0.0)
    jobs = [{"case": problem, "methods": methods, "seed": seed, "seconds": budget} for problem, seed in long]
    outcomes = []
    for job, value in zip(jobs, compute_parts(name, version, short_race, jobs, seen=_seen), strict=True):
        problem, seed = job["case"], job["seed"]
        one = race_outcome(problem, seed, long[problem, seed], ShortRace(*value), worst=worst, regret=regret)
        outcomes.append(one)
        lost = f"regret {one.regret:.3g} against {one.best}"
        say(f"{problem}, seed {seed}: the race chose {one.chosen}, {lost}")
    return outcomes


def _seen(job: Mapping[str, Any]) -> dict[str, str]:
    return {"data": content(job["case"].data)} if job["case"].ways else {}


def reproduction(
    race: Race, every: Sequence[RaceProblem], outcomes: Sequence[RaceOutcome], rows: list[Row], figure: Any
) -> Reproduction:
    """Of a study, with what a reader needs to judge the numbers."""
    seconds, episodes, seeds = race.size
    protocol = {
        "problems": [str(problem) for problem in every],
        "methods": list(race.methods),
        "long": f"{seconds:g} s of one core each; {episodes} validation tasks that the race has not seen",
        "short": f"{SHARE:g} of that time for all methods together, one process",
        "network": race.network,
        "seeds": seeds,
    }
    data = {"problems": [one._asdict() for one in outcomes]}
    return Reproduction(rows, {race.name: figure}, data, protocol)


def race_outcome(
    problem: RaceProblem,
    seed: int,
    long: Mapping[str, LongRun],
    raced: ShortRace,
    *,
    worst: float,
    regret: Regret,
) -> RaceOutcome:
    """Holds the first choice of a short race against the best of a long one; what diverged is ``worst``."""
    reached = {name: worst if one.score is None else one.score for name, one in long.items()}
    best = min(reached, key=reached.__getitem__) if worst else max(reached, key=reached.__getitem__)
    chosen = next((name for name in raced.order if name in reached), None)
    if chosen is None:
        raise UserError(f"{problem}: {'; '.join(raced.left_out)}.")
    share = raced.seconds / sum(one.seconds for one in long.values())
    lost = regret(reached[chosen], reached[best])
    return RaceOutcome(str(problem), seed, chosen, best, lost, raced.decided, share, reached, raced.order)


def race_figure(
    problems: Sequence[RaceOutcome], title: str, beside: Regret, limits: tuple[float, float] | None = None
) -> Any:
    """What every method reached after long training beside the best one, and what the race chose."""
    places = list(range(len(problems)))

    def heights(names: Sequence[str]) -> list[float]:
        pairs = zip(problems, names, strict=True)
        return [beside(one.long.get(name, math.nan), one.long[one.best]) for one, name in pairs]

    methods = list(dict.fromkeys(name for one in problems for name in one.long))
    lines = [line(name, places, heights([name] * len(problems)), dots=True) for name in methods]
    chosen = points(places, heights([one.chosen for one in problems]))
    lines.append(line("chosen by the race", [], [], ink=INK, points=chosen))
    words = [one.problem.replace(", 5-way ", "\n").replace(", ", "\n") for one in problems]
    ticks = [text.replace("-quadratic", "-\nquadratic") for text in words]
    only = panel("", title, lines, log_y=limits is not None, limits=limits, ticks=ticks)
    return panels_figure([only], width=11.0, height=4.0)


def counted_row(problems: Sequence[RaceOutcome]) -> Row:
    """That every problem was decided, however little was trained."""
    what = "every problem has a choice among the methods that were trained for long"
    chosen = sum(one.chosen in one.long for one in problems)
    return row(what, len(problems), chosen, bool(problems) and chosen == len(problems))


def race_rows(problems: Sequence[RaceOutcome], scale: str, close: float, what: str, said: str) -> list[Row]:
    """Whether first choices are close to the best, races cheap, and leads that were called decided right."""
    if scale == "smoke":
        return [counted_row(problems)]
    near = sum(one.regret <= close for one in problems)
    wrong = [one for one in problems if one.decided and one.regret > close]
    decided = sum(one.decided for one in problems)
    share = statistics.median(one.share for one in problems)
    costs, found = "the race costs at most a tenth of the long one", f"{near} of {len(problems)}; {said}"
    lead = "a lead that is called more than chance is right after long training"
    right = f"{decided - len(wrong)} of {decided}"
    return [
        counted_row(problems),
        row(what, f"{ENOUGH:.0%} (our aim)", found, near >= ENOUGH * len(problems)),
        row(costs, "0.1 (our aim)", f"{share:.3f} at the median", share <= SHARE * 1.1),
        # at `cpu`, of three on numbers and eight on pictures, one and two did not last
        row(lead, "all (our aim)", right, not wrong, expected=False),
    ]
