"""The run directory of advice or a search, whose manifest says what was asked, so that it can be resumed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from innerloop.choose.request import Request
from innerloop.choose.settings import AdviseSettings, SpaceSettings, ValidateSettings, model_for
from innerloop.core.errors import UserError
from innerloop.core.files import write_json_atomic
from innerloop.core.resources import available_cores
from innerloop.experiment.recipe.settings import make_recipe, recipe_to_toml
from innerloop.experiment.recipe.trust import admit
from innerloop.experiment.session import record_end
from innerloop.report.page import write_page
from innerloop.runs.directory import create_run
from innerloop.runs.executors import open_executor, slots
from innerloop.runs.manifest import actual_status, kind_of, read_manifest, start_manifest, update_manifest
from innerloop.runs.progress import Progress, RunLog, progress

SEARCH, ADVISE = "search", "advise"
"""Kinds of runs."""

MEASURED = "scores.jsonl"
RESULT = "result.json"


class Session(NamedTuple):
    """One go at a race, which an interruption ends."""

    run: Path
    workers: int
    spent: float
    clock: Callable[[], float]
    say: Callable[[str], None]
    counting: Callable[[int, str], AbstractContextManager[Progress]]
    executor: Executor | None = None

    @property
    def pool(self) -> int | Executor:
        """Who carries out trials: so many processes here, or a cluster."""
        return self.executor or self.workers

    @property
    def here(self) -> int:
        """Processes of this machine."""
        return self.workers if self.executor is None else available_cores()

    @property
    def measured(self) -> Path:
        """The file of measurements before training."""
        return self.run / MEASURED

    @property
    def seconds(self) -> float:
        """All that the race has taken so far."""
        return self.spent + self.clock()


def begin(request: Request[Any], argv: list[str] | None, **about: Any) -> Path:
    """A new run directory, whose manifest says what was asked and what else is said ``about`` it."""
    settings, recipe = request.settings, request.recipe
    kept: dict[str, Any]
    if isinstance(settings, AdviseSettings):
        kind, verb, kept = ADVISE, ADVISE, {"named": request.named}
    else:
        validate = isinstance(settings, ValidateSettings)
        kind, verb = SEARCH, "validate" if validate else SEARCH
        kept = {"validate": validate, "free": list(request.free)}
    name = f"{verb}-{recipe.name.removeprefix(f'{kind}-')}"
    run = create_run(Path(recipe.run.folder), name, recipe.run.seed)
    asked = {
        "source": request.source,
        "settings": settings.model_dump(),
        "recipe": recipe.model_dump(exclude_none=True),
        **kept,
    }
    start_manifest(run, argv, recipe_to_toml(recipe), {"kind": kind, "asked": asked, **about})
    return run


def is_search(run: Path) -> bool:
    """Whether a run is one of ``innerloop search``."""
    return kind_of(run) == SEARCH


def is_advice(run: Path) -> bool:
    """Whether a run is one of ``innerloop advise``."""
    return kind_of(run) == ADVISE


def reopen(run: Path, *, trust: bool = False, alone: bool = False) -> Request[Any]:
    """What an interrupted search, or advice, was asked."""
    manifest = read_manifest(run)
    status = actual_status(manifest)
    if status == "finished":
        raise UserError(f"{run} is finished: `innerloop report {run}` makes its page again.")
    if status == "running" and not alone:
        raise UserError(f"{run} is still running (process {manifest.get('pid')}): stop that first.")
    advice = kind_of(run) == ADVISE
    model: type[AdviseSettings | SpaceSettings]
    more: dict[str, Any]
    asked = manifest.get("asked") or {}
    try:
        if not isinstance(asked["recipe"], dict):
            raise TypeError(asked["recipe"])
        given = asked["settings"]
        model = AdviseSettings if advice else model_for(asked["validate"], given["space"]["name"])
        settings = model.model_validate(given)
        more = {"named": bool(asked["named"])} if advice else {"free": tuple(asked["free"])}
        recipe = admit(make_recipe(asked["recipe"]), set(), str(run), trust)
        return Request(asked["source"], settings, recipe, [], **more)
    except (KeyError, TypeError, ValidationError):
        instead = "ask again with `innerloop advise`" if advice else "begin the search anew"
        raise UserError(f"{run / 'manifest.json'} does not say what was asked: {instead}.") from None


class Workers(NamedTuple):
    """Who carries out trials: how many at a time, and on which cluster, if it is one."""

    number: int
    executor: Executor | None = None


@contextmanager
def open_workers(workers: int | None, cluster: str | None) -> Iterator[Workers]:
    """Processes of this machine, or the workers of a Dask cluster while the context lasts."""
    if cluster is None:
        yield Workers(workers or available_cores())
        return
    with open_executor(workers, cluster) as executor:
        yield Workers(workers or slots(executor), executor)


@contextmanager
def open_session(
    run: Path, title: str, workers: Workers, lines: Sequence[str], *, show: bool, started: float
) -> Iterator[Session]:
    """One more go at a run: people and the log are told of it, and what it took is kept however it ends."""
    log = RunLog(run / "log.txt")
    spent = float(read_manifest(run).get("spent") or 0.0)
    update_manifest(run, status="running", pid=os.getpid())
    teller = Progress(1, title.partition(" ")[0], 0, sys.stderr if show else None, log, None)

    def counting(total: int, unit: str) -> AbstractContextManager[Progress]:
        return progress(total, title, show, log=log, unit=unit)

    def clock() -> float:
        return time.monotonic() - started

    session = Session(run, workers.number, spent, clock, teller.line, counting, workers.executor)
    with record_end(run, log, teller):
        for line in (f"run: {run}", *lines):
            teller.line(line)
        try:
            yield session
        finally:
            update_manifest(run, spent=session.seconds)


def finish(run: Path, result: dict[str, Any]) -> Path:
    """Keeps the result and writes the page."""
    write_json_atomic(run / RESULT, result)
    update_manifest(run, status="finished")
    return write_page([run])
