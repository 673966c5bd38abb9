"""The race of ``advise``: methods are trained for as many seconds each, on a problem's own tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from innerloop.choose.problem import AdviceProblem
from innerloop.choose.race import (
    LEAST_EPISODES,
    LEAST_STEPS,
    RacePlan,
    Racer,
    Rungs,
    budget_error,
    budget_text,
    halving,
    judge_fresh,
    place,
    plan_rungs,
    run_race,
    shortest_race,
)
from innerloop.choose.session import Session
from innerloop.choose.trials import MOST_TIMED, Costs, Trial, decide_once, measure_recipes, shorten
from innerloop.core.errors import UserError

LAST = 2
"""So many reach the last rung, and are judged once more on fresh tasks."""
TIMING = 0.4
"""Share of what is left that measuring the cost of steps may take."""
RETRY = 10
"""Times the budget, as the next one, where it is not known what a race takes."""


class MethodRace(NamedTuple):
    """How a race went: methods, the best first, and what was left out and why."""

    racers: list[Racer]
    rungs: Rungs
    left_out: list[str]
    needed: float | None = None


def race_methods(
    problem: AdviceProblem, session: Session, reserve: float = 0.0, fresh: int = 0, pool: tuple[int, ...] = ()
) -> MethodRace:
    """Trains and judges within what is left of the budget; what runs when it is over is ended."""
    plan = decide_once(session.run, "plan", lambda: _decide(problem, session, reserve))
    rungs = Rungs(plan["fields"], plan["seconds"], plan["episodes"])
    costs = {name: Costs(*values) for name, values in plan["costs"].items()}
    racers = [Racer(e, [], costs[e.name]) for e in problem.entrants if e.name in costs]
    left_out = [*problem.left_out, *plan["left_out"]]
    if not racers:
        session.say(left_out[-1])
        return MethodRace([], rungs, left_out, plan["needed"])
    session.say(
        f"{len(racers)} methods: {', '.join(r.name for r in racers)}; rungs of "
        f"{', '.join(f'{s:.3g} s' for s in rungs.lengths)} of training each, {rungs.episodes} validation "
        "tasks"
    )

    def trial(racer: Racer, rung: int) -> Trial:
        """As many steps as the seconds of the rung allow."""
        steps = [max(LEAST_STEPS, int(seconds / racer.costs.step)) for seconds in rungs.lengths]
        recipe = shorten(racer.entrant.recipe, steps[-1], problem.queries)
        folder = session.run / "methods" / racer.name
        return Trial(recipe, folder, f"rung-{rung + 1}", steps[rung], rungs.episodes, go_on=True)

    course = RacePlan(
        rungs,
        trial,
        problem.better,
        unit="trainings",
        work=[1] * len(rungs.fields),
        line=lambda rung, best, running: f"rung {rung}: best {best.name} of {running}",
        diverged="training diverged for every method: lower outer.lr, or inner.lr.",
        left=time_left(problem, session, reserve),
    )
    order = run_race(racers, course, session)
    left_out += [
        f"{r.name} was not raced: the budget was over before its first rung was"
        for r in racers
        if not r.rungs
    ]
    if not order:
        return MethodRace([], rungs, left_out, RETRY * problem.asked.settings.seconds)
    finalists = [racer for racer in order[: rungs.fields[-1][0]] if racer.last.scores]
    left = time_left(problem, session)
    judged = judge_fresh(
        order, finalists, course, session, episodes=fresh, pool=list(pool) or None, left=left
    )
    judged.sort(key=lambda racer: (racer.fresh is None, place(racer.fresh or racer.last, problem.better)))
    return MethodRace([*judged, *order[len(finalists) :]], rungs, left_out)


def time_left(problem: AdviceProblem, session: Session, reserve: float = 0.0) -> Callable[[], float]:
    """Seconds that are left of the budget."""
    return lambda: problem.asked.settings.seconds - session.seconds - reserve


def _decide(problem: AdviceProblem, session: Session, reserve: float) -> dict[str, Any]:
    """How long methods are trained, from measured costs; what is too slow for the budget is left out."""
    left = time_left(problem, session, reserve)
    end = (1 - TIMING) * left()
    recipes = [shorten(e.recipe, MOST_TIMED, problem.queries) for e in problem.entrants]
    measured = measure_recipes(recipes, session.pool, lambda: left() - end)
    costs = {problem.entrants[place].name: cost for place, cost in sorted(measured.items())}
    left_out = [
        f"{e.name} was not raced: a few of its steps take longer than there is time for; a larger budget= "
        "would include it"
        for e in problem.entrants
        if e.name not in costs
    ]
    while not costs or (rungs := plan_methods([*costs.values()], session.workers, left())) is None:
        if len(costs) <= LAST or problem.asked.settings.methods:
            return _no_race(problem, costs, session, reserve)
        slow = max(costs, key=lambda name: costs[name].step)
        left_out.append(
            f"{slow} was not raced: a meta-step takes {costs[slow].step:.2g} s here, too long for "
            f"{LEAST_STEPS} of them in a rung; a larger budget= would include it"
        )
        del costs[slow]
    kept = {"fields": rungs.fields, "seconds": rungs.lengths, "episodes": rungs.episodes}
    return {**kept, "costs": {name: list(cost) for name, cost in costs.items()}, "left_out": left_out}


def plan_methods(costs: Sequence[Costs], workers: int, seconds: float) -> Rungs | None:
    """The longest race of as many methods, half of which go on until two are left."""
    return plan_rungs(halving(len(costs), last=LAST), costs, workers, seconds)


def _no_race(
    problem: AdviceProblem, costs: Mapping[str, Costs], session: Session, reserve: float
) -> dict[str, Any]:
    """Not even two methods fit: what needs no training is looked at, unless methods were asked for."""
    settings = problem.asked.settings
    needed = RETRY * settings.seconds
    if costs:  # what comes after has its share of any budget
        fields = halving(len(costs), last=LAST)
        shortly = session.seconds + shortest_race(fields, [*costs.values()], session.workers)
        needed = shortly / (1 - reserve / settings.seconds)
    names = [*costs] or [entrant.name for entrant in problem.entrants]
    what = f"a race of {', '.join(names)}" if len(names) > 1 else names[0]
    small = budget_error(settings.budget, needed, what)
    if not costs:
        small = UserError(
            f"budget={settings.budget} is too small for {what}: no time was left to measure what their steps "
            f"take; set budget={budget_text(needed)} or more."
        )
    if settings.methods or problem.asked.kind == "labels":
        raise small
    told = f"no method was raced: {str(small).removesuffix('.')}"
    nothing: dict[str, Any] = {"fields": [], "seconds": [], "episodes": LEAST_EPISODES, "costs": {}}
    return {**nothing, "left_out": [told], "needed": needed}
