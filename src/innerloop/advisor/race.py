"""Methods race on a problem's own tasks: as many seconds of training each, the same validation tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from innerloop.advisor.problem import Entrant, Problem
from innerloop.advisor.rungs import FRESH, LAST, Rungs, planned, shortest
from innerloop.core.errors import UserError
from innerloop.pilot.budget import LEAST_EPISODES, LEAST_STEPS, too_small
from innerloop.pilot.dividing import carried_out
from innerloop.pilot.keep import Sitting, decided
from innerloop.pilot.trials import MOST_TIMED, Costs, Reached, Trial, timed

FRESH_SEED = 1


class Racer(NamedTuple):
    """A method in the race, what it costs, and how it did.

    Attributes:
        entrant: the method.
        costs: seconds of a step, of a validation task, and of building.
        rungs: how it did at every rung that it reached.
        fresh: how it did on tasks that decided nothing before; None unless it was one of the last.
    """

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
    """How a race went.

    Attributes:
        racers: the methods, best first; none where the budget was too small for any race.
        rungs: how long each was trained.
        left_out: methods that did not race, and why, as sentences.
        needed: seconds that the shortest race would have taken, where there was none.
    """

    racers: list[Racer]
    rungs: Rungs
    left_out: list[str]
    needed: float | None = None


def race(problem: Problem, sitting: Sitting, reserve: float = 0.0) -> Race:
    """Trains and judges within what is left of the budget.

    Args:
        problem: methods and tasks.
        sitting: the run, its processes and its clock.
        reserve: seconds to be left over for what comes after.

    Raises:
        UserError: the budget is too small for the methods that were asked for, or all methods diverged.
    """
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
    order = _raced(problem, sitting, rungs, racers)
    return Race(_on_fresh_tasks(problem, sitting, rungs, order), rungs, left_out)


def _decide(problem: Problem, sitting: Sitting, reserve: float) -> dict[str, Any]:
    """How long methods are trained, from measured costs; what is too slow for the budget is left out."""
    queries = problem.queries
    measured = timed([e.short(MOST_TIMED, queries) for e in problem.entrants], sitting.workers)
    costs = dict(zip((e.name for e in problem.entrants), measured, strict=True))
    left, left_out = problem.asked.settings.seconds - sitting.seconds - reserve, list[str]()
    while (rungs := planned([*costs.values()], sitting.hands, left)) is None:
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
    needed = sitting.seconds + reserve + shortest([*costs.values()], sitting.hands)
    what = f"a race of {', '.join(costs)}" if len(costs) > 1 else next(iter(costs))
    small = too_small(settings.budget, needed, what, "")
    if settings.methods or problem.asked.kind == "labels":
        raise small
    nothing = Rungs([], [], LEAST_EPISODES)._asdict()
    told = f"no method was raced: {str(small).removesuffix('.')}"
    return {**nothing, "costs": {}, "left_out": [told], "needed": needed}


def _raced(problem: Problem, sitting: Sitting, rungs: Rungs, racers: Sequence[Racer]) -> list[Racer]:
    """All methods, the best first: those that came further before those that did not."""
    running, out = list(racers), list[Racer]()
    with sitting.counting(sum(rungs.fields), "trainings") as bar:
        done = 0

        def tick(_: Trial) -> None:
            nonlocal done
            done += 1
            bar.update(done)

        for rung, size in enumerate(rungs.fields):
            out, running = [*running[size:], *out], running[:size]
            trials = [_trial(problem, sitting, racer, rungs, rung) for racer in running]
            for racer, result in zip(running, carried_out(trials, sitting, tick), strict=True):
                racer.rungs.append(result)
            running.sort(key=lambda racer: _place(racer.last, problem.better))
            if not running[0].last.scores:
                raise UserError("training diverged for every method: lower outer.lr, or inner.lr.")
            bar.line(f"rung {rung + 1}: best {running[0].entrant.name} of {len(running)}")
    return [*running, *out]


def _place(judged: Reached, better: int) -> tuple[bool, float]:
    """To sort by; what diverged comes last."""
    return (judged.mean is None, 0.0 if judged.mean is None else -better * judged.mean)


def _on_fresh_tasks(problem: Problem, sitting: Sitting, rungs: Rungs, order: Sequence[Racer]) -> list[Racer]:
    """The last ones judged once more, and in the order that this gives."""
    finalists = [racer for racer in order[: rungs.fields[-1]] if racer.last.scores]
    trials = [
        _trial(problem, sitting, racer, rungs, len(rungs.fields) - 1)._replace(
            name="fresh", episodes=FRESH * rungs.episodes, seed=FRESH_SEED
        )
        for racer in finalists
    ]
    results = carried_out(trials, sitting, lambda _: None)
    judged = [racer._replace(fresh=result) for racer, result in zip(finalists, results, strict=True)]
    judged.sort(key=lambda racer: _place(racer.fresh or racer.last, problem.better))
    return [*judged, *order[len(finalists) :]]


def _trial(problem: Problem, sitting: Sitting, racer: Racer, rungs: Rungs, rung: int) -> Trial:
    steps = [max(LEAST_STEPS, int(seconds / racer.costs.step)) for seconds in rungs.seconds]
    recipe = racer.entrant.short(steps[-1], problem.queries)
    folder = sitting.run / "methods" / racer.entrant.name
    return Trial(recipe, folder, f"rung-{rung + 1}", steps[rung], rungs.episodes, go_on=True)
