"""One race between recipes: trained rung by rung within a time, judged on the same tasks, and halved."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from innerloop.choose.trials import Costs, Left, Trial, TrialResult, run_trials
from innerloop.core.errors import UserError
from innerloop.core.files import write_json_atomic
from innerloop.core.formatting import duration
from innerloop.core.statistics import Interval, paired_difference
from innerloop.experiment.recipe.schema import Recipe

if TYPE_CHECKING:
    from innerloop.choose.session import Session

LEAST_STEPS = 20
"""Training of fewer meta-steps tells nothing."""

LEAST_EPISODES, MOST_EPISODES = 40, 200
"""Tasks of a judgement, where nothing else is asked."""

JUDGING = 0.25
"""Share of the time that judging may take."""

CAUTION = 0.9
"""Share of the time left that is planned: costs are measured on few steps."""

FRESH, FRESH_SEED = 2, 1
"""The last ones are judged on so many times as many tasks, which decided nothing before."""

RACE = "race.json"
"""Of a run: every entrant's recipe, and its scores on every task at every rung."""

DIVERGED = "training diverged for every candidate: lower outer.lr."


class Entrant(NamedTuple):
    """A recipe in a race; one ``field`` is halved together, and ``about`` is what its user keeps of it."""

    name: str
    recipe: Recipe
    words: str = ""
    field: str = ""
    about: Any = None


class Racer(NamedTuple):
    """An entrant, what its steps cost, and how it did at every rung so far."""

    entrant: Entrant
    rungs: list[TrialResult]
    costs: Costs = Costs(0.0, 0.0, 0.0)
    fresh: TrialResult | None = None

    @property
    def name(self) -> str:
        """The entrant's."""
        return self.entrant.name

    @property
    def last(self) -> TrialResult:
        """How it did last, on the tasks that all have seen."""
        return self.rungs[-1]

    @property
    def whole_seconds(self) -> float:
        """What its whole training would take on one core."""
        return self.entrant.recipe.outer.steps * self.costs.step


class Rungs(NamedTuple):
    """How many of every field race at a rung, how long in all (seconds or meta-steps), on how many tasks."""

    fields: list[list[int]]
    lengths: list[float]
    episodes: int


def halving(*fields: int, last: int = 1) -> list[list[int]]:
    """Every field at every rung, until at most ``last`` of each are left."""
    rungs = [[*fields]]
    while max(rungs[-1]) > last:
        rungs.append([-(-size // 2) for size in rungs[-1]])
    return rungs


class _Work(NamedTuple):
    """What a race asks of one process: trainings in units of the first rung, judgements, and builds."""

    training: float
    judgements: int
    builds: int


def _work(fields: Sequence[Sequence[int]], workers: int, fresh: int) -> _Work:
    """Every rung waits for its slowest process; every rung but the first doubles what came before."""
    turns = [-(-sum(sizes) // workers) for sizes in fields]
    added = [1.0, *(2.0**rung for rung in range(len(fields) - 1))]
    training = sum(turn * more for turn, more in zip(turns, added, strict=True))
    last = turns[-1] if fresh else 0
    return _Work(training, sum(turns) + fresh * last, sum(turns) + last)


def mean_costs(costs: Sequence[Costs]) -> Costs:
    """Of several entrants."""
    return Costs(*(sum(column) / len(costs) for column in zip(*costs, strict=True)))


def plan_rungs(
    fields: list[list[int]],
    costs: Sequence[Costs],
    workers: int,
    seconds: float,
    *,
    episodes: int | None = None,
    fresh: int = FRESH,
    forced: bool = False,
) -> Rungs | None:
    """The longest race within the seconds (or ``forced``); None if the first rung were too short."""
    work, left, cost = _work(fields, workers, fresh), CAUTION * seconds, mean_costs(costs)
    room = JUDGING * left / (work.judgements * cost.episode)
    judged = episodes or int(min(MOST_EPISODES, max(LEAST_EPISODES, room)))
    first = (left - judged * work.judgements * cost.episode - work.builds * cost.build) / work.training
    if first < LEAST_STEPS * max(c.step for c in costs) and not forced:
        return None
    return Rungs(fields, [first * 2**rung for rung in range(len(fields))], judged)


def in_steps(rungs: Rungs, step: float, last: int | None = None) -> Rungs:
    """The same race, with as many meta-steps for all as its seconds allow, or ``last`` at its last rung."""
    doubled = [2**rung for rung in range(len(rungs.fields))]
    start = max(1, last // doubled[-1]) if last else math.floor(rungs.lengths[0] / step)
    steps = [start * times for times in doubled]
    return rungs._replace(lengths=[*steps[:-1], last or steps[-1]])


def shortest_race(
    fields: Sequence[Sequence[int]],
    costs: Sequence[Costs],
    workers: int,
    episodes: int | None = None,
    fresh: int = FRESH,
) -> float:
    """Seconds of the shortest race that tells anything."""
    work, cost = _work(fields, workers, fresh), mean_costs(costs)
    training = work.training * LEAST_STEPS * max(c.step for c in costs)
    judging = (episodes or LEAST_EPISODES) * work.judgements * cost.episode
    return (training + judging + work.builds * cost.build) / CAUTION


def budget_error(budget: str, needed: float, what: str, fewer: str = "") -> UserError:
    """A budget that does not suffice: what would."""
    return UserError(
        f"budget={budget} is too small for {what}, which take about {duration(round(needed))} here: set "
        f"budget={budget_text(needed)} or more{fewer}."
    )


def budget_text(needed: float) -> str:
    """A budget of so many seconds or a little more, as it is typed."""
    return f"{math.ceil(needed / 60)}m" if needed > 90 else f"{10 * math.ceil(needed / 10)}s"


def standing(racer: Racer, better: int = 1) -> tuple[int, bool, float]:
    """To sort by: those that came furthest first, then the best; what diverged comes last."""
    return (-len(racer.rungs), *place(racer.last, better))


def place(result: TrialResult, better: int = 1) -> tuple[bool, float]:
    """To sort by: the best first (``better`` is −1 where a lower score is), what diverged last."""
    return (result.mean is None, 0.0 if result.mean is None else -better * result.mean)


class RacePlan(NamedTuple):
    """What a race is run on: units of ``work`` of a racer at every rung, and the seconds ``left``."""

    rungs: Rungs
    trial: Callable[[Racer, int], Trial]
    better: int
    unit: str
    work: Sequence[int]
    line: Callable[[int, Racer, int], str]
    diverged: str
    left: Left = None


def run_race(racers: Sequence[Racer], course: RacePlan, session: Session) -> list[Racer]:
    """Trains rung by rung; the order within every field, best first, without those that had no time."""
    names = dict.fromkeys(racer.entrant.field for racer in racers)
    fields = {name: [racer for racer in racers if racer.entrant.field == name] for name in names}
    rungs, done = course.rungs, 0
    total = sum(sum(sizes) * more for sizes, more in zip(rungs.fields, course.work, strict=True))
    with session.counting(total, course.unit) as bar:
        for rung, sizes in enumerate(rungs.fields):
            running = [racer for name, n in zip(fields, sizes, strict=True) for racer in fields[name][:n]]

            def tick(_: Trial, added: int = course.work[rung]) -> None:
                nonlocal done
                done += added
                bar.update(done)

            trials = [course.trial(racer, rung) for racer in running]
            results = run_trials(trials, session.pool, tick, course.left)
            for racer, result in zip(running, results, strict=True):
                racer.rungs.extend([] if result is None else [result])
            keep_race(session.run, racers)
            ran = [racer for racer in running if racer.rungs]
            for name, n in zip(fields, sizes, strict=True):
                ahead = [racer for racer in fields[name][:n] if racer.rungs]
                ahead.sort(key=lambda racer: standing(racer, course.better))
                fields[name] = [*ahead, *fields[name][n:]]
            best = min(ran, key=lambda racer: standing(racer, course.better), default=None)
            if best is not None and not best.last.scores:
                raise UserError(course.diverged)
            if best is None or None in results:
                bar.line(f"the time for the race is over in rung {rung + 1} of {len(rungs.fields)}")
                break
            bar.line(course.line(rung + 1, best, len(running)))
    return [racer for field in fields.values() for racer in field]


def judge_fresh(
    racers: Sequence[Racer],
    finalists: Sequence[Racer],
    course: RacePlan,
    session: Session,
    *,
    episodes: int | None = None,
    pool: list[int] | None = None,
    left: Left = None,
) -> list[Racer]:
    """The finalists judged on fresh tasks (of these pictures only, where there is a pool), in their order."""
    judged = episodes or FRESH * course.rungs.episodes
    trials = [
        course.trial(racer, len(racer.rungs) - 1)._replace(
            name="fresh", episodes=judged, seed=FRESH_SEED, pool=pool
        )
        for racer in finalists
    ]
    results = run_trials(trials, session.pool, lambda _: None, left)
    fresh = [racer._replace(fresh=result) for racer, result in zip(finalists, results, strict=True)]
    keep_race(session.run, [*{racer.name: racer for racer in (*racers, *fresh)}.values()])
    return fresh


def keep_race(run: Path, racers: Sequence[Racer]) -> None:
    """Writes down what all entrants are, and all their scores so far."""
    entrants = [
        {
            "name": racer.name,
            "field": racer.entrant.field,
            "recipe": racer.entrant.recipe.model_dump(exclude_none=True),
            "costs": racer.costs._asdict(),
            "rungs": [result._asdict() for result in racer.rungs],
            "fresh": None if racer.fresh is None else racer.fresh._asdict(),
        }
        for racer in racers
    ]
    write_json_atomic(run / RACE, {"entrants": entrants})


def lead(first: Sequence[float], second: Sequence[float], better: int = 1) -> Interval | None:
    """By how much the first is better on the tasks that both have; None where these are fewer than two."""
    n = min(len(first), len(second))
    if n < 2:
        return None
    gap = paired_difference(list(first[:n]), list(second[:n]))
    return gap._replace(mean=better * gap.mean)


def is_beyond_chance(gap: Interval | None) -> bool:
    """Whether a lead is larger than its interval."""
    return gap is not None and math.isfinite(gap.ci95) and gap.mean > gap.ci95
