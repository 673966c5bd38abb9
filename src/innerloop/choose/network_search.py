"""``innerloop search``: candidates ranked before training race against random ones; one is chosen."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.choose.problem import Architecture, SearchProblem, pose_search
from innerloop.choose.race import (
    DIVERGED,
    RacePlan,
    Racer,
    Rungs,
    budget_error,
    halving,
    in_steps,
    is_beyond_chance,
    judge_fresh,
    lead,
    mean_costs,
    plan_rungs,
    run_race,
    shortest_race,
    standing,
)
from innerloop.choose.request import Request
from innerloop.choose.session import Session, Workers, begin, finish, open_session, open_workers, reopen
from innerloop.choose.settings import SearchSettings, SpaceSettings, ValidateSettings
from innerloop.choose.shortlist import TIMED, Ranking, own_scores, random_field, rank_candidates
from innerloop.choose.trials import MOST_TIMED, Costs, Trial, decide_once, measure_recipes, shorten
from innerloop.choose.validation import ScoreValidation, validate_scores
from innerloop.core.errors import UserError
from innerloop.core.files import write_text_atomic
from innerloop.core.formatting import difference_text, duration, score_text
from innerloop.core.statistics import Interval, mean_interval
from innerloop.data.source import ImageSource
from innerloop.experiment.messages import recipe_words
from innerloop.experiment.recipe.settings import recipe_to_toml
from innerloop.runs.manifest import read_manifest
from innerloop.runs.process import sole_writer


class ShortlistEntry(NamedTuple):
    """A candidate of the shortlist."""

    racer: Racer
    architecture: Architecture
    scores: dict[str, float]
    chosen: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        last, fresh = self.racer.last, self.racer.fresh
        return {
            "name": self.racer.name,
            "from": self.racer.entrant.field,
            **self.architecture._asdict(),
            "scores": self.scores,
            "accuracy": last.mean,
            "ci95": last.ci95,
            "rungs": [
                {"steps": r.steps, "accuracy": r.mean, "ci95": r.ci95, "seconds": r.seconds}
                for r in self.racer.rungs
            ],
            "fresh": None if fresh is None else {"accuracy": fresh.mean, "ci95": fresh.ci95},
            "chosen": self.chosen,
        }


class Ending(NamedTuple):
    """How a race ended: the chosen one of the last two, and their difference on fresh tasks."""

    chosen: Racer
    difference: Interval | None
    decided: bool
    sentence: str


def ending_of(first: Racer, second: Racer) -> Ending:
    """Chooses between the score's last candidate and the random one, which were judged on fresh tasks."""
    ours, theirs = first.fresh, second.fresh
    assert ours is not None
    assert theirs is not None
    gap = lead(ours.scores, theirs.scores)
    ahead = gap.mean >= 0 if gap else ours.mean is not None
    chosen, other = (first, second) if ahead else (second, first)
    result = ours if ahead else theirs
    decided = is_beyond_chance(gap and gap._replace(mean=abs(gap.mean)))
    said = score_text("accuracy", result.mean, result.ci95)
    if gap is None:
        behind = f"{other.name} diverged"
    else:
        behind = f"{difference_text('accuracy', abs(gap.mean), gap.ci95)} against {other.name}"
        behind += "" if decided else ", which these tasks cannot tell from none"
    sentence = f"{chosen.name} is chosen: {said} on {result.episodes} fresh validation tasks, {behind}."
    return Ending(chosen, gap, decided, sentence)


def worth_of(racers: Sequence[Racer], end: Ending, scoring: float, k: int) -> dict[str, Any]:
    """The best by the score against the best random one, at what cost (``scoring``: seconds on one core)."""
    ours, theirs = ([r for r in racers if r.entrant.field == field] for field in ("score", "random"))
    firsts = [(a.rungs[0].mean, b.rungs[0].mean) for a, b in zip(ours, theirs, strict=False)]
    pairs = [a - b for a, b in firsts if a is not None and b is not None]
    field = mean_interval(pairs) if len(pairs) > 1 else None
    gap = end.difference
    score, random = (
        sum(result.seconds for racer in some for result in racer.rungs) for some in (ours, theirs)
    )
    score += scoring
    ours_took, alone, theirs_took = map(duration, (score, scoring, random))
    return {
        "difference": gap.mean if gap else None,
        "ci95": gap.ci95 if gap else None,
        "decided": end.decided,
        "field_difference": field.mean if field else None,
        "field_ci95": field.ci95 if field else None,
        "random_candidates": len(theirs),
        "seconds": {"score": score, "random": random, "scoring": scoring},
        "sentence": _worth_sentence(gap, end.decided, field, k, len(theirs)),
        "cost": (
            f"On one core, the score's candidates took {ours_took} (scoring alone {alone}), "
            f"the random ones {theirs_took}."
        ),
    }


def _worth_sentence(gap: Interval | None, decided: bool, field: Interval | None, k: int, others: int) -> str:
    if gap is None:
        return "One of the last two diverged, so there is no difference to tell."
    said = difference_text("accuracy", gap.mean, gap.ci95)
    beyond = "beyond chance on these tasks" if decided else "no more than chance on these tasks"
    text = f"The best of {k} by the score against the best of {others} random ones: {said}, {beyond}."
    if field is not None:
        mean = difference_text("accuracy", field.mean, field.ci95)
        text += f" Over pairs of equal size after the first rung: {mean} (interval over {field.n} pairs)."
    return text


class NetworkRace(NamedTuple):
    """A race of networks that has come to its end."""

    sentence: str
    shortlist: list[ShortlistEntry]
    worth: dict[str, Any]
    reliability: dict[str, Any]
    rungs: Rungs
    protocol: dict[str, Any]
    recipe: Path
    pool: int
    k: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        fields, steps, episodes = self.rungs
        return {
            "sentence": self.sentence,
            "shortlist": [one.as_dict() for one in self.shortlist],
            "chosen": next(one for one in self.shortlist if one.chosen).as_dict(),
            "worth": self.worth,
            "reliability": self.reliability,
            "rungs": {"steps": steps, "fields": fields, "episodes": episodes},
            "protocol": self.protocol,
            "recipe": str(self.recipe),
            "command": f"innerloop train {self.recipe}",
            "pool": self.pool,
            "k": self.k,
        }


class SearchResult(NamedTuple):
    """A search or a validation that has come to its end."""

    outcome: NetworkRace | ScoreValidation
    notes: list[str]
    source: str
    settings: SpaceSettings
    seconds: float
    workers: int
    run: Path
    report: Path | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as ``innerloop search --json`` prints them."""
        budget = self.settings.seconds
        return {
            **self.outcome.as_dict(),
            "validate": isinstance(self.outcome, ScoreValidation),
            "notes": self.notes,
            "source": self.source,
            "budget": budget,
            "seconds": self.seconds,
            "over_budget": max(0.0, self.seconds - budget),
            "workers": self.workers,
            "settings": self.settings.model_dump(),
            "run": str(self.run),
            **({} if self.report is None else {"report": str(self.report)}),
        }


MOST_K = 8
"""Candidates from the score, where the budget decides."""

CHOSEN = "chosen.toml"


@recipe_words()
def search_networks(
    asked: Request[SpaceSettings],
    *,
    workers: int | None = None,
    cluster: str | None = None,
    argv: list[str] | None = None,
    show: bool = True,
    started: float | None = None,
) -> SearchResult:
    """Searches for an architecture, or validates the scores of a search, in a new run directory."""
    started = time.monotonic() if started is None else started
    problem = pose_search(asked)
    with open_workers(workers, cluster) as found:
        pictures = problem.draws.source
        about = {"name": pictures.name, "content_sha256": pictures.content_sha256}
        run = begin(asked, argv, data=about)
        with sole_writer(run):
            return _carry_on(run, asked, problem, found, show, started)


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
    with open_workers(workers, cluster) as found, sole_writer(run) as locked_before:
        asked = reopen(run, trust=trust, alone=locked_before or force)
        problem = pose_search(asked)
        _check_pictures(run, problem.draws.source)
        return _carry_on(run, asked, problem, found, show, started)


def _carry_on(
    run: Path,
    asked: Request[SpaceSettings],
    problem: SearchProblem,
    workers: Workers,
    show: bool,
    started: float,
) -> SearchResult:
    lines = [f"warning: {note}" for note in asked.notes]
    with open_session(run, f"search {asked.source}", workers, lines, show=show, started=started) as session:
        settings = asked.settings
        outcome: NetworkRace | ScoreValidation
        if isinstance(settings, ValidateSettings):
            outcome = validate_scores(problem, settings, session)
        else:
            assert isinstance(settings, SearchSettings)
            outcome = race_networks(problem, settings, session)
        spent = session.seconds
        result = SearchResult(outcome, asked.notes, asked.source, settings, spent, session.workers, run)
        return result._replace(report=finish(run, result.as_dict()))


def _check_pictures(run: Path, source: ImageSource) -> None:
    """Refuses to go on with other pictures."""
    then = read_manifest(run)["data"]["content_sha256"]
    if then != source.content_sha256:
        raise UserError(
            f"the pictures of {source.name} have changed since {run} began: begin anew with the same command."
        )


def race_networks(problem: SearchProblem, settings: SearchSettings, session: Session) -> NetworkRace:
    """Ranks, trains, and chooses: the best by the score, and random ones of the same size."""
    ranking = rank_candidates(problem, settings, session)
    plan = decide_once(session.run, "plan", lambda: _decide(problem, settings, session, ranking))
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
    racers = _race(problem, session, rungs, racers)
    end = ending_of(*(racer for racer in racers if racer.fresh is not None))
    recipe = session.run / CHOSEN
    _write_recipe(problem, end.chosen, recipe, settings)
    shortlist = [
        ShortlistEntry(
            racer,
            problem.describe(racer.entrant.about),
            scores.of(place),
            chosen=racer.name == end.chosen.name,
        )
        for place, racer in enumerate(racers)
    ]
    protocol = problem.protocol(int(rungs.lengths[-1]), rungs.episodes)
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
            fields, forced = halving(k, k + more), bool(settings.steps)
            planned = plan_rungs(fields, [costs], workers, left, episodes=episodes, forced=forced)
            if planned is not None:
                rungs = in_steps(planned, costs.step, settings.steps)
                kept = {"fields": fields, "steps": rungs.lengths, "episodes": rungs.episodes}
                return {**kept, "k": k, "extra": more, "seconds_of": costs._asdict()}
    k = settings.k or 1
    needed = session.seconds + shortest_race(halving(k, k), [costs], workers, episodes)
    what = "one candidate and a random one" if k == 1 else f"{k} candidates and {k} random ones"
    raise budget_error(settings.budget, needed, what, ", or a lower k=" if k > 1 else "")


def _extra(k: int, costs: Costs, scoring: float, race: float) -> int:
    """Random candidates more, for the time that scoring took: both fields then cost the same."""
    each = race / (2 * k)
    return min(k, int(scoring / max(each, costs.step)))


def _race(problem: SearchProblem, session: Session, rungs: Rungs, racers: list[Racer]) -> list[Racer]:
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
        diverged=DIVERGED,
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
