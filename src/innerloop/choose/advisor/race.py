"""Methods race on a problem's own tasks: as many seconds of training each, the same validation tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from innerloop.choose.advisor.problem import Entrant, Problem
from innerloop.choose.advisor.rungs import FRESH, LAST, Rungs, planned, shortest
from innerloop.choose.pilot.budget import LEAST_EPISODES, LEAST_STEPS, enough, too_small
from innerloop.choose.pilot.dividing import carried_out
from innerloop.choose.pilot.keep import Sitting, decided
from innerloop.choose.pilot.trials import MOST_TIMED, Costs, Reached, Trial, carry_out, timed
from innerloop.choose.pilot.workers import OutOfTimeError
from innerloop.core.errors import UserError

FRESH_SEED = 1
TIMING = 0.4
"""Share of what is left that measuring the cost of steps may take."""
RETRY = 10
"""Times the budget, as the next one, where it is not known what a race takes."""


class Racer(NamedTuple):
    """A method in the race, what it costs, and how it did."""

    entrant: Entrant
    costs: Costs
    rungs: list[Reached]
    fresh: Reached | None = None

    @property
    def whole_seconds(self) -> float:
        """What its whole training would take on one core."""
        return self.entrant.recipe.outer.steps * self.costs.step

    @property
    def last(self) -> Reached:
        """How it did last, on the tasks that all have seen."""
        return self.rungs[-1]


class Race(NamedTuple):
    """How a race went."""

    racers: list[Racer]
    rungs: Rungs
    left_out: list[str]
    needed: float | None = None


def race(
    problem: Problem, sitting: Sitting, reserve: float = 0.0, fresh: int = 0, pool: tuple[int, ...] = ()
) -> Race:
    """Trains and judges within what is left of the budget; what runs when it is over is ended."""
    plan = decided(sitting, "plan", lambda: _decide(problem, sitting, reserve))
    rungs = Rungs(plan["fields"], plan["seconds"], plan["episodes"])
    costs = {name: Costs(*values) for name, values in plan["costs"].items()}
    racers = [Racer(e, costs[e.name], []) for e in problem.entrants if e.name in costs]
    left_out = [*problem.left_out, *plan["left_out"]]
    if not racers:
        sitting.say(left_out[-1])
        return Race([], rungs, left_out, plan["needed"])
    sitting.say(
        f"{len(racers)} methods: {', '.join(r.entrant.name for r in racers)}; rungs of "
        f"{', '.join(f'{s:.3g} s' for s in rungs.seconds)} of training each, {rungs.episodes} validation "
        "tasks"
    )
    order = _raced(problem, sitting, rungs, racers, reserve)
    left_out += [
        f"{r.entrant.name} was not raced: the budget was over before its first rung was"
        for r in racers
        if not r.rungs
    ]
    if not order:
        return Race([], rungs, left_out, RETRY * problem.asked.settings.seconds)
    episodes = fresh or FRESH * rungs.episodes
    return Race(_on_fresh_tasks(problem, sitting, rungs, order, episodes, pool), rungs, left_out)


def time_left(problem: Problem, sitting: Sitting, reserve: float = 0.0) -> Callable[[], float]:
    """Seconds that are left of the budget."""
    return lambda: problem.asked.settings.seconds - sitting.seconds - reserve


def _decide(problem: Problem, sitting: Sitting, reserve: float) -> dict[str, Any]:
    """How long methods are trained, from measured costs; what is too slow for the budget is left out."""
    queries, left = problem.queries, time_left(problem, sitting, reserve)
    end = (1 - TIMING) * left()
    recipes = [e.short(MOST_TIMED, queries) for e in problem.entrants]
    measured = timed(recipes, sitting.workers, lambda: left() - end)
    costs = {problem.entrants[place].name: cost for place, cost in sorted(measured.items())}
    left_out = [
        f"{e.name} was not raced: a few of its steps take longer than there is time for; a larger budget= "
        "would include it"
        for e in problem.entrants
        if e.name not in costs
    ]
    while not costs or (rungs := planned([*costs.values()], sitting.hands, left())) is None:
        if len(costs) <= LAST or problem.asked.settings.methods:
            return _no_race(problem, costs, sitting, reserve)
        slow = max(costs, key=lambda name: costs[name].step)
        left_out.append(
            f"{slow} was not raced: a meta-step takes {costs[slow].step:.2g} s here, too long for "
            f"{LEAST_STEPS} of them in a rung; a larger budget= would include it"
        )
        del costs[slow]
    return {
        **rungs._asdict(),
        "costs": {name: list(cost) for name, cost in costs.items()},
        "left_out": left_out,
    }


def _no_race(
    problem: Problem, costs: Mapping[str, Costs], sitting: Sitting, reserve: float
) -> dict[str, Any]:
    """Not even two methods fit: what needs no training is looked at, unless methods were asked for."""
    settings = problem.asked.settings
    needed = RETRY * settings.seconds
    if costs:  # what comes after has its share of any budget
        shortly = sitting.seconds + shortest([*costs.values()], sitting.hands)
        needed = shortly / (1 - reserve / settings.seconds)
    names = [*costs] or [entrant.name for entrant in problem.entrants]
    what = f"a race of {', '.join(names)}" if len(names) > 1 else names[0]
    small = too_small(settings.budget, needed, what, "")
    if not costs:
        small = UserError(
            f"budget={settings.budget} is too small for {what}: no time was left to measure what their steps "
            f"take; set budget={enough(needed)} or more."
        )
    if settings.methods or problem.asked.kind == "labels":
        raise small
    nothing = Rungs([], [], LEAST_EPISODES)._asdict()
    told = f"no method was raced: {str(small).removesuffix('.')}"
    return {**nothing, "costs": {}, "left_out": [told], "needed": needed}


def _raced(
    problem: Problem, sitting: Sitting, rungs: Rungs, racers: Sequence[Racer], reserve: float
) -> list[Racer]:
    """All methods, the best first: those that came further before those that did not."""
    running, out, left = list(racers), list[Racer](), time_left(problem, sitting, reserve)
    with sitting.counting(sum(rungs.fields), "trainings") as bar:
        done = 0

        def tick(_: Trial) -> None:
            nonlocal done
            done += 1
            bar.update(done)

        for rung, size in enumerate(rungs.fields):
            out, running = [*running[size:], *out], running[:size]
            trials = [_trial(problem, sitting, racer, rungs, rung) for racer in running]
            reached = _in_time(trials, sitting, tick, left)
            for racer, result in zip(running, reached, strict=True):
                racer.rungs.extend([] if result is None else [result])
            running = [racer for racer in running if racer.rungs]
            running.sort(key=lambda racer: (-len(racer.rungs), _place(racer.last, problem.better)))
            if running and not running[0].last.scores:
                raise UserError("training diverged for every method: lower outer.lr, or inner.lr.")
            if None in reached:
                bar.line(f"the time for the race is over in rung {rung + 1} of {len(rungs.fields)}")
                break
            bar.line(f"rung {rung + 1}: best {running[0].entrant.name} of {len(running)}")
    return [*running, *out]


def _in_time(
    trials: Sequence[Trial],
    sitting: Sitting,
    tick: Callable[[Trial], None],
    left: Callable[[], float],
) -> list[Reached | None]:
    """What trials came to; None for those that were ended because time was up."""
    try:
        return [*carried_out(trials, sitting, tick, left)]
    except OutOfTimeError:
        return [carry_out(trial) if trial.file.is_file() else None for trial in trials]


def _place(judged: Reached, better: int) -> tuple[bool, float]:
    """To sort by; what diverged comes last."""
    return (judged.mean is None, 0.0 if judged.mean is None else -better * judged.mean)


def _on_fresh_tasks(
    problem: Problem,
    sitting: Sitting,
    rungs: Rungs,
    order: Sequence[Racer],
    episodes: int,
    pool: tuple[int, ...],
) -> list[Racer]:
    """The last ones judged once more, and in the order that this gives."""
    finalists = [racer for racer in order[: rungs.fields[-1]] if racer.last.scores]
    trials = [
        _trial(problem, sitting, racer, rungs, len(racer.rungs) - 1)._replace(
            name="fresh", episodes=episodes, seed=FRESH_SEED, pool=list(pool) or None
        )
        for racer in finalists
    ]
    results = _in_time(trials, sitting, lambda _: None, time_left(problem, sitting))
    judged = [racer._replace(fresh=result) for racer, result in zip(finalists, results, strict=True)]
    judged.sort(key=lambda racer: (racer.fresh is None, _place(racer.fresh or racer.last, problem.better)))
    return [*judged, *order[len(finalists) :]]


def _trial(problem: Problem, sitting: Sitting, racer: Racer, rungs: Rungs, rung: int) -> Trial:
    steps = [max(LEAST_STEPS, int(seconds / racer.costs.step)) for seconds in rungs.seconds]
    recipe = racer.entrant.short(steps[-1], problem.queries)
    folder = sitting.run / "methods" / racer.entrant.name
    return Trial(recipe, folder, f"rung-{rung + 1}", steps[rung], rungs.episodes, go_on=True)
