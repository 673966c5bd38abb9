"""``innerloop search``: from what was asked to a run directory with the answer and its page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from innerloop.choose.pilot.asked import Asked
from innerloop.choose.pilot.keep import KIND, RESULT, Sitting, begin, check_pictures, reopened, sit_down
from innerloop.choose.pilot.problem import Problem, pose
from innerloop.choose.pilot.race import race
from innerloop.choose.pilot.results import Race, SearchResult, Validation
from innerloop.choose.pilot.settings import Search, Validate
from innerloop.choose.pilot.validate import validate as validate_scores
from innerloop.core.files import write_json_atomic
from innerloop.experiment.lifetime import ending
from innerloop.experiment.together import called, remember_run
from innerloop.experiment.words import recipe_words
from innerloop.report.page import write_page
from innerloop.runs.manifest import update_manifest
from innerloop.runs.process import sole_writer


@recipe_words()
def search(
    asked: Asked,
    *,
    validate: bool = False,
    workers: int | None = None,
    argv: list[str] | None = None,
    show: bool = True,
    started: float | None = None,
    shared: bool = False,
) -> SearchResult:
    """Searches for an architecture, or validates the scores of a search, in a new run directory."""
    started = time.monotonic() if started is None else started
    problem = pose(asked)
    run = begin(asked, problem.draws.source, validate=validate, argv=argv)
    with sole_writer(run):
        return _carry_on(run, asked, problem, workers, show, started, asked.notes, shared=shared)


@recipe_words()
def resume_search(
    run: Path,
    *,
    trust: bool = False,
    workers: int | None = None,
    show: bool = True,
    force: bool = False,
    shared: bool = False,
) -> SearchResult:
    """Goes on with a search that was interrupted; what it finds is what it would have found."""
    started = time.monotonic()
    with sole_writer(run) as locked_before:
        asked, _ = reopened(run, trust=trust, alone=locked_before or force)
        problem = pose(asked)
        check_pictures(run, problem.draws.source)
        return _carry_on(run, asked, problem, workers, show, started, shared=shared)


def _carry_on(
    run: Path,
    asked: Asked,
    problem: Problem,
    workers: int | None,
    show: bool,
    started: float,
    notes: Sequence[str] = (),
    *,
    shared: bool = False,
) -> SearchResult:
    remember_run(run)
    sitting, teller, log = sit_down(
        run, f"search {asked.source}", workers, show=show, started=started, shared=shared
    )
    for note in notes:
        teller.line(f"warning: {note}")
    with ending(run, log, teller):
        try:
            with called(KIND, *_call(run, asked, workers)) as ranks:
                outcome = answer(problem, asked, sitting._replace(ranks=ranks))
        finally:
            update_manifest(run, spent=sitting.seconds)
    settings, spent = asked.settings, sitting.seconds
    result = SearchResult(outcome, ranks, [*notes], asked.source, settings, spent, sitting.workers, run)
    write_json_atomic(run / RESULT, result.as_dict())
    update_manifest(run, status="finished")
    return result._replace(report=write_page([run]))


def _call(run: Path, asked: Asked, workers: int | None) -> tuple[float, dict[str, Any]]:
    """How long ranks wait for each other, and what they are told: a candidate may take the whole budget."""
    limit = asked.settings.seconds + asked.recipe.run.rank_timeout
    return limit, {"run": str(run.resolve()), "workers": workers}


def answer(problem: Problem, asked: Asked, sitting: Sitting) -> Race | Validation:
    """What was asked: the outcome of a race, or of a validation. All ranks of a search come here."""
    if isinstance(asked.settings, Validate):
        return validate_scores(problem, asked.settings, sitting)
    assert isinstance(asked.settings, Search)
    return race(problem, asked.settings, sitting)
