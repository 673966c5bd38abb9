"""A search that processes on any machines share through a folder: one leads it, the others train candidates.

The leader ranks, decides, writes and talks. What is to be trained it posts in the run's directory; every
process, the leader too, takes what nobody else has taken. A candidate's result does not depend on who
trained it, so the answer is that of a search by one process. Where the leader dies, another process goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from innerloop.choose.pilot.trials import Reached, Trial, carry_out
from innerloop.choose.pilot.workers import in_processes
from innerloop.core.errors import UserError
from innerloop.core.files import read_json, write_json_atomic
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.experiment.recipe.trust import admit, foreign_code
from innerloop.runs.claims import Claims
from innerloop.training.execution.group import apart

POSTED = "posted.json"
CLAIMS = "claims"
POLL = 1.0
"""Seconds between looks at what other processes do."""

Tick = Callable[[Trial], None]


def post(run: Path, trials: Sequence[Trial]) -> None:
    """Tells all processes what is to be trained next."""
    told = [{**one._asdict(), "folder": one.folder.relative_to(run).as_posix()} for one in trials]
    write_json_atomic(run / POSTED, {"trials": told})


def posted(run: Path, asked: Recipe, *, trust: bool = False) -> list[Trial]:
    """What the leader has posted, as this machine sees it."""
    file = run / POSTED
    if not file.is_file():
        return []
    try:
        trials = [
            Trial(**{**one, "folder": run / one["folder"], "recipe": dict(one["recipe"])})
            for one in read_json(file)["trials"]
        ]
        recipes = [make_recipe(trial.recipe) for trial in trials]
        inside = all(trial.file.resolve().is_relative_to(run.resolve()) for trial in trials)
    except (KeyError, TypeError, ValueError, ValidationError):
        inside = False
    if not inside:
        raise UserError(f"{file} is damaged: stop the search, and begin it anew in another folder.")
    known = foreign_code(asked)
    for trial, recipe in zip(trials, recipes, strict=True):
        ours = [key for key, name in foreign_code(recipe).items() if known.get(key) == name]
        trial.recipe.update(admit(recipe, ours, str(file), trust).model_dump(exclude_none=True))
    return trials


def trained_together(trials: Sequence[Trial], run: Path, workers: int, tick: Tick) -> list[Reached]:
    """The results of all trials, in their order, beside any processes that do the same."""
    post(run, trials)
    results: dict[int, Reached] = {}

    def keep(place: int, result: Reached) -> None:
        results[place] = result
        tick(trials[place])

    train_free(trials, run, workers, keep)
    claims = Claims(run / CLAIMS)
    while len(results) < len(trials):  # others train the rest: they finish, or they die
        for place in [place for place in range(len(trials)) if place not in results]:
            result = _attempt(claims, trials[place])
            if result is not None:
                keep(place, result)
        if len(results) < len(trials):
            time.sleep(POLL)
    return [results[place] for place in range(len(trials))]


def train_free(trials: Sequence[Trial], run: Path, workers: int, keep: Callable[[int, Reached], None]) -> int:
    """Trains whatever nobody else does at the moment."""
    todo = []
    for place, trial in enumerate(trials):
        if trial.file.is_file():
            keep(place, carry_out(trial))
        else:
            todo.append(place)
    count = 0
    with apart():
        work = partial(_attempt_there, run)
        for number, result in in_processes(work, [trials[place] for place in todo], workers):
            if result is not None:
                count += 1
                keep(todo[number], result)
    return count


def _attempt_there(run: Path, trial: Trial) -> Reached | None:
    """In a process of its own, which tells others that it is alive."""
    return _attempt(Claims(run / CLAIMS), trial)


def _attempt(claims: Claims, trial: Trial) -> Reached | None:
    """The result, or None while another process works on it."""
    if trial.file.is_file():
        return carry_out(trial)
    claim = claims.take(f"{trial.folder.name}.{trial.name}")
    if claim is None:
        return None
    with claim, apart():
        return carry_out(trial)
