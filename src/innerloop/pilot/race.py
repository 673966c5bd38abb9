"""The pilot: two fields of candidates are trained by successive halving and judged on the same tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.core.errors import UserError
from innerloop.pilot.budget import mean_costs, too_small
from innerloop.pilot.describe import candidate_record, protocol_of
from innerloop.pilot.dividing import carried_out
from innerloop.pilot.keep import Sitting, decided
from innerloop.pilot.problem import Problem
from innerloop.pilot.rungs import FRESH, Rungs, affordable_rungs, shortest
from innerloop.pilot.settings import Search
from innerloop.pilot.shortlisting import Ranking, random_field, ranked, scores_of
from innerloop.pilot.trials import Costs, Trial, timed
from innerloop.pilot.worth import closing, judged_worth
from innerloop.recipes.settings import recipe_to_toml
from innerloop.runs.files import write_text_atomic

MOST_K = 8
"""Candidates from the score, where the budget decides."""

TIMED = 4
"""Candidates whose costs are measured."""

CHOSEN = "chosen.toml"
FRESH_SEED = 1


class Racer(NamedTuple):
    """A candidate in a race: its name, its field, and the results of its rungs so far."""

    name: str
    field: str
    candidate: Any
    results: list[dict[str, Any]]

    @property
    def place(self) -> float:
        """To sort by: how far it came, then its accuracy; one that diverged stands last."""
        mean = self.results[-1]["mean"] if self.results else None
        return -1.0 if mean is None else float(mean)


def race(problem: Problem, settings: Search, sitting: Sitting) -> dict[str, Any]:
    """Ranks, trains, and chooses.

    Returns:
        ``shortlist``, ``chosen``, ``worth``, ``reliability``, ``recipe``, ``command``, ``rungs`` and
        ``protocol``.
    """
    scored = ranked(problem, settings, sitting)
    plan = decided(sitting, "plan", lambda: _decide(problem, settings, sitting, scored))
    rungs = Rungs(plan["steps"], [(a, b) for a, b in plan["fields"]], plan["episodes"])
    k, extra = plan["k"], plan["extra"]
    chance = random_field(problem.space, problem.seed, scored.order[:k], extra)
    means = scores_of(problem, settings, sitting, [*scored.order[:k], *chance]).means()
    racers = [Racer(f"score-{i + 1}", "score", c, []) for i, c in enumerate(scored.order[:k])]
    racers += [Racer(f"random-{i + 1}", "random", c, []) for i, c in enumerate(chance)]
    by = settings.score if settings.method == "shortlist" else settings.method
    sitting.say(
        f"{k} of {len(scored.order)} candidates by {by}, and {len(chance)} random ones; rungs of "
        f"{', '.join(map(str, rungs.steps))} steps, {rungs.episodes} validation tasks"
    )
    finalists = _raced(problem, sitting, rungs, racers)
    fresh = _fresh(problem, sitting, rungs, finalists)
    last = closing(finalists, fresh)
    scores = {r.name: {name: v[i] for name, v in means.items()} for i, r in enumerate(racers)}
    seconds = {"scoring": scored.seconds, **_spent(racers)}
    worth = judged_worth(racers, last, seconds, k)
    chosen = last.chosen
    recipe = sitting.run / CHOSEN
    if sitting.leads:
        _write_recipe(problem, chosen, recipe, settings)
    entries = [_entry(problem, racer, scores[racer.name], last.fresh.get(racer.name)) for racer in racers]
    entries.sort(key=lambda e: (-len(e["rungs"]), e["accuracy"] is None, -(e["accuracy"] or 0.0)))
    for entry in entries:
        entry["chosen"] = entry["name"] == chosen.name
    return {
        "sentence": last.sentence,
        "shortlist": entries,
        "chosen": next(entry for entry in entries if entry["chosen"]),
        "worth": worth,
        "reliability": {**scored.reliability(k), "decided": last.decided},
        "rungs": rungs._asdict(),
        "protocol": {**protocol_of(problem, rungs.steps[-1], rungs.episodes), "score": settings.score},
        "recipe": str(recipe),
        "command": f"innerloop train {recipe}",
        "pool": len(scored.order),
        "k": k,
    }


def _decide(problem: Problem, settings: Search, sitting: Sitting, scored: Ranking) -> dict[str, Any]:
    """How many candidates, and how long they are trained, from measured costs."""
    some = [problem.short_recipe_of(candidate, 10) for candidate in scored.order[:TIMED]]
    costs = mean_costs(timed(some, sitting.workers))
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


def _fresh(
    problem: Problem, sitting: Sitting, rungs: Rungs, finalists: Sequence[Racer]
) -> list[dict[str, Any]]:
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


def _spent(racers: Sequence[Racer]) -> dict[str, float]:
    return {
        field: sum(r["seconds"] for racer in racers if racer.field == field for r in racer.results)
        for field in ("score", "random")
    }


def _entry(
    problem: Problem, racer: Racer, scores: dict[str, float], fresh: dict[str, Any] | None
) -> dict[str, Any]:
    last = racer.results[-1]
    rungs = [
        {"steps": r["steps"], "accuracy": r["mean"], "ci95": r["ci95"], "seconds": r["seconds"]}
        for r in racer.results
    ]
    return {
        "name": racer.name,
        "from": racer.field,
        **candidate_record(problem.space, racer.candidate),
        "scores": scores,
        "accuracy": last["mean"],
        "ci95": last["ci95"],
        "rungs": rungs,
        "fresh": None if fresh is None else {"accuracy": fresh["mean"], "ci95": fresh["ci95"]},
    }


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
