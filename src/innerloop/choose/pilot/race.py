"""The pilot: two fields of candidates are trained by successive halving and judged on the same tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.choose.pilot.budget import mean_costs, too_small
from innerloop.choose.pilot.describe import described, protocol_of
from innerloop.choose.pilot.dividing import carried_out
from innerloop.choose.pilot.keep import Sitting, decided
from innerloop.choose.pilot.problem import Problem
from innerloop.choose.pilot.racers import Listed, Racer
from innerloop.choose.pilot.results import Race
from innerloop.choose.pilot.rungs import FRESH, Rungs, affordable_rungs, shortest
from innerloop.choose.pilot.settings import Search
from innerloop.choose.pilot.shortlisting import Ranking, random_field, ranked, scores_of
from innerloop.choose.pilot.trials import MOST_TIMED, Costs, Reached, Trial, timed
from innerloop.choose.pilot.worth import Spent, closing, judged_worth
from innerloop.core.errors import UserError
from innerloop.core.files import write_text_atomic
from innerloop.experiment.recipe.settings import recipe_to_toml

MOST_K = 8
"""Candidates from the score, where the budget decides."""

TIMED = 4
"""Candidates whose costs are measured."""

CHOSEN = "chosen.toml"
FRESH_SEED = 1


class RacePlan(NamedTuple):
    """A race as it was decided: its rungs, candidates of the score, and random ones more."""

    rungs: Rungs
    k: int
    extra: int


def race(problem: Problem, settings: Search, sitting: Sitting) -> Race:
    """Ranks, trains, and chooses."""
    scored = ranked(problem, settings, sitting)
    plan = _plan(decided(sitting, "plan", lambda: _decide(problem, settings, sitting, scored)))
    racers = _fields(problem, scored, plan)
    candidates = [racer.candidate for racer in racers]
    means = scores_of(problem, settings, sitting, candidates).means()
    sitting.say(_begun(settings, scored, plan, len(racers)))
    finalists = _raced(problem, sitting, plan.rungs, racers)
    last = closing(finalists, _fresh(problem, sitting, plan.rungs, finalists))
    recipe = sitting.run / CHOSEN
    if sitting.leads:
        _write_recipe(problem, last.chosen, recipe, settings)
    shortlist = [
        Listed(
            racer.name,
            racer.field,
            described(problem.space, racer.candidate),
            {name: values[place] for name, values in means.items()},
            racer.results,
            last.fresh.get(racer.name),
            chosen=racer.name == last.chosen.name,
        )
        for place, racer in enumerate(racers)
    ]
    return Race(
        sentence=last.sentence,
        shortlist=sorted(shortlist, key=lambda one: one.order),
        worth=judged_worth(racers, last, _spent(scored, racers), plan.k),
        reliability={**scored.reliability(plan.k), "decided": last.decided},
        rungs=plan.rungs,
        protocol=protocol_of(problem, plan.rungs.steps[-1], plan.rungs.episodes),
        score=settings.score,
        recipe=recipe,
        pool=len(scored.order),
        k=plan.k,
    )


def _plan(kept: dict[str, Any]) -> RacePlan:
    rungs = Rungs(kept["steps"], [(a, b) for a, b in kept["fields"]], kept["episodes"])
    return RacePlan(rungs, kept["k"], kept["extra"])


def _fields(problem: Problem, scored: Ranking, plan: RacePlan) -> list[Racer]:
    """The best by the score, then random ones."""
    best = scored.order[: plan.k]
    chance = random_field(problem.space, problem.seed, best, plan.extra)
    return [
        *(Racer(f"score-{i + 1}", "score", candidate, []) for i, candidate in enumerate(best)),
        *(Racer(f"random-{i + 1}", "random", candidate, []) for i, candidate in enumerate(chance)),
    ]


def _begun(settings: Search, scored: Ranking, plan: RacePlan, racers: int) -> str:
    by = settings.score if settings.method == "shortlist" else settings.method
    return (
        f"{plan.k} of {len(scored.order)} candidates by {by}, and {racers - plan.k} random ones; rungs of "
        f"{', '.join(map(str, plan.rungs.steps))} steps, {plan.rungs.episodes} validation tasks"
    )


def _decide(problem: Problem, settings: Search, sitting: Sitting, scored: Ranking) -> dict[str, Any]:
    """How many candidates, and how long they are trained, from measured costs."""
    some = [problem.short_recipe_of(candidate, MOST_TIMED) for candidate in scored.order[:TIMED]]
    costs = mean_costs([*timed(some, sitting.workers).values()])
    left = settings.seconds - sitting.seconds
    most = min(MOST_K, len(scored.order), problem.space.total // 3)
    wanted = [min(settings.k, len(scored.order))] if settings.k else range(max(1, most), 0, -1)
    for k in wanted:
        extra = _extra(k, costs, scored.seconds, left * sitting.hands)
        for more in {extra: None, 0: None}:
            rungs = affordable_rungs(
                k, k + more, sitting.hands, costs, left, settings.steps, settings.episodes
            )
            if rungs is not None:
                return {**rungs._asdict(), "k": k, "extra": more, "seconds_of": costs._asdict()}
    k = settings.k or 1
    needed = sitting.seconds + shortest(k, k, sitting.hands, costs, settings.episodes)
    what = "one candidate and a random one" if k == 1 else f"{k} candidates and {k} random ones"
    raise too_small(settings.budget, needed, what, ", or a lower k=" if k > 1 else "")


def _extra(k: int, costs: Costs, scoring: float, pilot: float) -> int:
    """Random candidates more, for the time that scoring took: both fields then cost the same."""
    each = pilot / (2 * k)
    return min(k, int(scoring / max(each, costs.step)))


def _raced(problem: Problem, sitting: Sitting, rungs: Rungs, racers: Sequence[Racer]) -> list[Racer]:
    """Trains rung by rung; the last of each field remain."""
    fields = {name: [r for r in racers if r.field == name] for name in ("score", "random")}
    more = [b - a for a, b in zip([0, *rungs.steps], rungs.steps, strict=False)]
    total = sum(sum(field) * steps for field, steps in zip(rungs.fields, more, strict=True))
    done = 0
    with sitting.counting(total, "steps") as bar:
        for rung, (steps, sizes) in enumerate(zip(rungs.steps, rungs.fields, strict=True)):
            running = [r for name, n in zip(fields, sizes, strict=True) for r in fields[name][:n]]

            def tick(_: Trial, added: int = more[rung]) -> None:
                nonlocal done
                done += added
                bar.update(done)

            trials = [
                _trial(problem, sitting.run, racer, rungs, f"rung-{rung + 1}", steps) for racer in running
            ]
            for racer, result in zip(running, carried_out(trials, sitting, tick), strict=True):
                racer.results.append(result)
            for field, n in zip(fields, sizes, strict=True):
                fields[field] = sorted(fields[field][:n], key=lambda racer: -racer.place)
            best = max(running, key=lambda racer: racer.place)
            if best.place < 0:
                raise UserError("training diverged for every candidate: lower outer.lr.")
            bar.line(
                f"rung {rung + 1}: {len(running)} candidates, best {best.name} at {100 * best.place:.1f} %"
            )
    return [fields[name][0] for name in fields]


def _fresh(problem: Problem, sitting: Sitting, rungs: Rungs, finalists: Sequence[Racer]) -> list[Reached]:
    """The last two on tasks that decided nothing before."""
    trials = [
        _trial(problem, sitting.run, racer, rungs, "fresh", rungs.steps[-1])._replace(
            episodes=FRESH * rungs.episodes, seed=FRESH_SEED
        )
        for racer in finalists
    ]
    return carried_out(trials, sitting, lambda _: None)


def _trial(problem: Problem, run: Path, racer: Racer, rungs: Rungs, name: str, steps: int) -> Trial:
    recipe = problem.short_recipe_of(racer.candidate, rungs.steps[-1])
    return Trial(recipe, run / "candidates" / racer.name, name, steps, rungs.episodes, go_on=True)


def _spent(scored: Ranking, racers: Sequence[Racer]) -> Spent:
    score, random = (
        sum(result.seconds for racer in racers if racer.field == field for result in racer.results)
        for field in ("score", "random")
    )
    return Spent(scored.seconds, score, random)


def _write_recipe(problem: Problem, chosen: Racer, path: Path, settings: Search) -> None:
    """The recipe that trains the chosen candidate in full."""
    source = Path(problem.recipe.data.name).name
    recipe = problem.recipe_of(chosen.candidate).model_copy(
        update={
            "name": f"{source}-{problem.space.name}-found",
            "description": f"found by `innerloop search` on {source}: {chosen.name}, score={settings.score}",
        }
    )
    command = f"innerloop train {path}"
    write_text_atomic(
        path, recipe_to_toml(recipe, f"{command}\n\n{problem.space.describe(chosen.candidate)}")
    )
