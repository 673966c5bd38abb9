"""``innerloop search``: candidates ranked before training race against random ones; one is chosen.

From what was asked to a run directory with the answer, the recipe of the chosen network, and a page.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

from innerloop.choose.problem import SearchProblem, pose_search
from innerloop.choose.race import (
    RacePlan,
    Racer,
    Rungs,
    halved,
    in_steps,
    judge_fresh,
    mean_costs,
    plan_rungs,
    run_race,
    shortest_race,
    standing,
    too_small,
)
from innerloop.choose.records import (
    RESULT,
    Session,
    Workers,
    begin_search,
    check_pictures,
    decided,
    open_hands,
    open_session,
    reopen_search,
)
from innerloop.choose.request import Request
from innerloop.choose.search_results import (
    NetworkRace,
    ScoreValidation,
    SearchResult,
    ShortlistEntry,
    describe,
    ending_of,
    protocol_of,
    worth_of,
)
from innerloop.choose.settings import SearchSettings, SpaceSettings, ValidateSettings
from innerloop.choose.shortlist import TIMED, Ranking, own_scores, random_field, rank_candidates
from innerloop.choose.trials import MOST_TIMED, Costs, Trial, measure_recipes, shorten
from innerloop.choose.validation import validate_scores
from innerloop.core.files import write_json_atomic, write_text_atomic
from innerloop.experiment.messages import recipe_words
from innerloop.experiment.recipe.settings import recipe_to_toml
from innerloop.experiment.session import ending
from innerloop.report.page import write_page
from innerloop.runs.manifest import update_manifest
from innerloop.runs.process import sole_writer

MOST_K = 8
"""Candidates from the score, where the budget decides."""

CHOSEN = "chosen.toml"


@recipe_words()
def search_networks(
    asked: Request[SpaceSettings],
    *,
    validate: bool = False,
    workers: int | None = None,
    cluster: str | None = None,
    argv: list[str] | None = None,
    show: bool = True,
    started: float | None = None,
) -> SearchResult:
    """Searches for an architecture, or validates the scores of a search, in a new run directory."""
    started = time.monotonic() if started is None else started
    problem = pose_search(asked)
    with open_hands(workers, cluster) as hands:
        run = begin_search(asked, problem.draws.source, validate=validate, argv=argv)
        with sole_writer(run):
            return _carry_on(run, asked, problem, hands, show, started)


@recipe_words()
def resume_search(
    run: Path,
    *,
    trust: bool = False,
    workers: int | None = None,
    cluster: str | None = None,
    show: bool = True,
    force: bool = False,
) -> SearchResult:
    """Goes on with a search that was interrupted; what it finds is what it would have found."""
    started = time.monotonic()
    with open_hands(workers, cluster) as hands, sole_writer(run) as locked_before:
        asked, _ = reopen_search(run, trust=trust, alone=locked_before or force)
        problem = pose_search(asked)
        check_pictures(run, problem.draws.source)
        return _carry_on(run, asked, problem, hands, show, started)


def _carry_on(
    run: Path,
    asked: Request[SpaceSettings],
    problem: SearchProblem,
    hands: Workers,
    show: bool,
    started: float,
) -> SearchResult:
    session, teller, log = open_session(run, f"search {asked.source}", hands, show=show, started=started)
    for note in asked.notes:
        teller.line(f"warning: {note}")
    with ending(run, log, teller):
        try:
            outcome = _answer(problem, asked.settings, session)
        finally:
            update_manifest(run, spent=session.seconds)
    spent = session.seconds
    result = SearchResult(outcome, asked.notes, asked.source, asked.settings, spent, session.workers, run)
    write_json_atomic(run / RESULT, result.as_dict())
    update_manifest(run, status="finished")
    return result._replace(report=write_page([run]))


def _answer(
    problem: SearchProblem, settings: SpaceSettings, session: Session
) -> NetworkRace | ScoreValidation:
    if isinstance(settings, ValidateSettings):
        return validate_scores(problem, settings, session)
    assert isinstance(settings, SearchSettings)
    return race_networks(problem, settings, session)


def race_networks(problem: SearchProblem, settings: SearchSettings, session: Session) -> NetworkRace:
    """Ranks, trains, and chooses: the best by the score, and random ones of the same size."""
    ranking = rank_candidates(problem, settings, session)
    plan = decided(session.run, "plan", lambda: _decide(problem, settings, session, ranking))
    rungs, k = Rungs(plan["fields"], plan["steps"], plan["episodes"]), int(plan["k"])
    best = ranking.order[:k]
    fields = {"score": best, "random": random_field(problem.space, problem.seed, best, plan["extra"])}
    racers = [
        Racer(problem.entrant(candidate, f"{field}-{number}", field), [])
        for field, candidates in fields.items()
        for number, candidate in enumerate(candidates, 1)
    ]
    scores = own_scores(problem, settings, session, [racer.entrant.about for racer in racers])
    by = settings.score if settings.method == "shortlist" else settings.method
    session.say(
        f"{k} of {len(ranking.order)} candidates by {by}, and {len(racers) - k} random ones; rungs of "
        f"{', '.join(map(str, rungs.lengths))} steps, {rungs.episodes} validation tasks"
    )
    racers = _raced(problem, session, rungs, racers)
    end = ending_of(*(racer for racer in racers if racer.fresh is not None))
    recipe = session.run / CHOSEN
    _write_recipe(problem, end.chosen, recipe, settings)
    shortlist = [
        ShortlistEntry(
            racer,
            describe(problem.space, racer.entrant.about),
            scores.of(place),
            chosen=racer.name == end.chosen.name,
        )
        for place, racer in enumerate(racers)
    ]
    protocol = protocol_of(problem, int(rungs.lengths[-1]), rungs.episodes)
    return NetworkRace(
        sentence=end.sentence,
        shortlist=sorted(shortlist, key=lambda one: standing(one.racer)),
        worth=worth_of(racers, end, ranking.seconds, k),
        reliability={**ranking.reliability(k), "decided": end.decided},
        rungs=rungs,
        protocol={**protocol, "score": settings.score},
        recipe=recipe,
        pool=len(ranking.order),
        k=k,
    )


def _decide(
    problem: SearchProblem, settings: SearchSettings, session: Session, ranking: Ranking
) -> dict[str, Any]:
    """How many candidates, and how long they are trained, from measured costs."""
    timed = [problem.entrant(candidate).recipe for candidate in ranking.order[:TIMED]]
    short = [shorten(recipe, MOST_TIMED, problem.queries) for recipe in timed]
    costs = mean_costs([*measure_recipes(short, session.pool).values()])
    left, workers, episodes = settings.seconds - session.seconds, session.workers, settings.episodes
    most = min(MOST_K, len(ranking.order), problem.space.total // 3)
    wanted = [min(settings.k, len(ranking.order))] if settings.k else range(max(1, most), 0, -1)
    for k in wanted:
        extra = _extra(k, costs, ranking.seconds, left * workers)
        for more in {extra: None, 0: None}:
            fields, forced = halved(k, k + more), bool(settings.steps)
            planned = plan_rungs(fields, [costs], workers, left, episodes=episodes, forced=forced)
            if planned is not None:
                rungs = in_steps(planned, costs.step, settings.steps)
                kept = {"fields": fields, "steps": rungs.lengths, "episodes": rungs.episodes}
                return {**kept, "k": k, "extra": more, "seconds_of": costs._asdict()}
    k = settings.k or 1
    needed = session.seconds + shortest_race(halved(k, k), [costs], workers, episodes)
    what = "one candidate and a random one" if k == 1 else f"{k} candidates and {k} random ones"
    raise too_small(settings.budget, needed, what, ", or a lower k=" if k > 1 else "")


def _extra(k: int, costs: Costs, scoring: float, race: float) -> int:
    """Random candidates more, for the time that scoring took: both fields then cost the same."""
    each = race / (2 * k)
    return min(k, int(scoring / max(each, costs.step)))


def _raced(problem: SearchProblem, session: Session, rungs: Rungs, racers: list[Racer]) -> list[Racer]:
    """Trains rung by rung; the last of each field are judged on fresh tasks."""
    steps = [int(length) for length in rungs.lengths]

    def trial(racer: Racer, rung: int) -> Trial:
        recipe = shorten(racer.entrant.recipe, steps[-1], problem.queries)
        folder = session.run / "candidates" / racer.name
        return Trial(recipe, folder, f"rung-{rung + 1}", steps[rung], rungs.episodes, go_on=True)

    def line(rung: int, best: Racer, running: int) -> str:
        return f"rung {rung}: {running} candidates, best {best.name} at {100 * (best.last.mean or 0.0):.1f} %"

    course = RacePlan(
        rungs,
        trial,
        better=1,
        unit="steps",
        work=[b - a for a, b in itertools.pairwise([0, *steps])],
        line=line,
        diverged="training diverged for every candidate: lower outer.lr.",
    )
    order = run_race(racers, course, session)
    finalists = [next(r for r in order if r.entrant.field == field) for field in ("score", "random")]
    judged = {racer.name: racer for racer in judge_fresh(racers, finalists, course, session)}
    return [judged.get(racer.name, racer) for racer in racers]


def _write_recipe(problem: SearchProblem, chosen: Racer, path: Path, settings: SearchSettings) -> None:
    """The recipe that trains the chosen candidate in full."""
    source = Path(problem.recipe.data.name).name
    recipe = chosen.entrant.recipe.model_copy(
        update={
            "name": f"{source}-{problem.space.name}-found",
            "description": f"found by `innerloop search` on {source}: {chosen.name}, score={settings.score}",
        }
    )
    command = f"innerloop train {path}"
    described = problem.space.describe(chosen.entrant.about)
    write_text_atomic(path, recipe_to_toml(recipe, f"{command}\n\n{described}"))
