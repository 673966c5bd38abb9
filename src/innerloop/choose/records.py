"""The run directory of advice or a search: what was asked, what was decided, and one go at it after another.

The manifest says what was asked, so that ``resume`` needs nothing else.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from innerloop.choose.request import Request
from innerloop.choose.settings import AdviseSettings, SpaceSettings, model_for
from innerloop.core.errors import UserError
from innerloop.core.files import read_json, write_json_atomic
from innerloop.core.resources import available_cores
from innerloop.data.source import ImageSource
from innerloop.experiment.recipe.settings import make_recipe, recipe_to_toml
from innerloop.experiment.recipe.trust import admit
from innerloop.runs.directory import create_run
from innerloop.runs.executors import open_executor, slots
from innerloop.runs.manifest import actual_status, kind_of, read_manifest, start_manifest, update_manifest
from innerloop.runs.progress import Progress, RunLog, progress

SEARCH, ADVISE = "search", "advise"
"""Kinds of runs."""

Value = TypeVar("Value")
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


def begin_search(
    request: Request[SpaceSettings], source: ImageSource, *, validate: bool, argv: list[str] | None
) -> Path:
    """A new run directory of a search."""
    about = {"data": {"name": source.name, "content_sha256": source.content_sha256}}
    kept = {"validate": validate, "free": list(request.free)}
    return _begin(request, SEARCH, "validate" if validate else SEARCH, kept, about, argv)


def begin_advice(request: Request[AdviseSettings], argv: list[str] | None) -> Path:
    """A new run directory of advice."""
    return _begin(request, ADVISE, ADVISE, {"named": request.named}, {}, argv)


def _begin(
    request: Request[Any],
    kind: str,
    verb: str,
    kept: dict[str, Any],
    about: dict[str, Any],
    argv: list[str] | None,
) -> Path:
    recipe = request.recipe
    name = recipe.name if recipe.name.startswith(f"{kind}-") else f"{kind}-{recipe.name}"
    run = create_run(Path(recipe.run.folder), name.replace(kind, verb, 1), recipe.run.seed)
    asked = {
        "source": request.source,
        "settings": request.settings.model_dump(),
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


def reopen_search(
    run: Path, *, trust: bool = False, alone: bool = False
) -> tuple[Request[SpaceSettings], bool]:
    """What an interrupted search was asked, and whether it is a validation."""

    def read(kept: dict[str, Any]) -> tuple[Request[SpaceSettings], bool]:
        model = model_for(kept["validate"], kept["settings"]["space"]["name"])
        recipe = admit(make_recipe(kept["recipe"]), set(), str(run), trust)
        settings = model.model_validate(kept["settings"])
        return Request(kept["source"], settings, recipe, [], free=tuple(kept["free"])), kept["validate"]

    return _reopen(run, read, "begin the search anew", alone)


def reopen_advice(run: Path, *, trust: bool = False, alone: bool = False) -> Request[AdviseSettings]:
    """What interrupted advice was asked for."""

    def read(kept: dict[str, Any]) -> Request[AdviseSettings]:
        recipe = admit(make_recipe(kept["recipe"]), set(), str(run), trust)
        settings = AdviseSettings.model_validate(kept["settings"])
        return Request(kept["source"], settings, recipe, [], named=bool(kept["named"]))

    return _reopen(run, read, "ask again with `innerloop advise`", alone)


def _reopen(run: Path, read: Callable[[dict[str, Any]], Value], instead: str, alone: bool) -> Value:
    """What a run that can be gone on with says of what was asked."""
    manifest = read_manifest(run)
    status = actual_status(manifest)
    if status == "finished":
        raise UserError(f"{run} is finished: `innerloop report {run}` makes its page again.")
    if status == "running" and not alone:
        raise UserError(f"{run} is still running (process {manifest.get('pid')}): stop that first.")
    asked = manifest.get("asked") or {}
    try:
        if not isinstance(asked["recipe"], dict):
            raise TypeError(asked["recipe"])
        return read(asked)
    except (KeyError, TypeError, ValidationError):
        raise UserError(f"{run / 'manifest.json'} does not say what was asked: {instead}.") from None


def check_pictures(run: Path, source: ImageSource) -> None:
    """Refuses to go on with other pictures."""
    then = read_manifest(run)["data"]["content_sha256"]
    if then != source.content_sha256:
        raise UserError(
            f"the pictures of {source.name} have changed since {run} began: begin anew with the same command."
        )


class Workers(NamedTuple):
    """Who carries out trials: how many at a time, and on which cluster, if it is one."""

    workers: int
    executor: Executor | None = None


@contextmanager
def open_hands(workers: int | None, cluster: str | None) -> Iterator[Workers]:
    """Processes of this machine, or the workers of a Dask cluster while the context lasts."""
    if cluster is None:
        yield Workers(workers or available_cores())
        return
    with open_executor(workers, cluster) as executor:
        yield Workers(workers or slots(executor), executor)


def open_session(
    run: Path, title: str, hands: Workers, *, show: bool, started: float
) -> tuple[Session, Progress, RunLog]:
    """One more go at a run, and where people and the log are told of it."""
    log = RunLog(run / "log.txt")
    spent = float(read_manifest(run).get("spent") or 0.0)
    update_manifest(run, status="running", pid=os.getpid())
    teller = Progress(1, title.partition(" ")[0], 0, sys.stderr if show else None, log, None)

    def counting(total: int, unit: str) -> AbstractContextManager[Progress]:
        return progress(total, title, show, log=log, unit=unit)

    def clock() -> float:
        return time.monotonic() - started

    teller.line(f"run: {run}")
    return Session(run, hands.workers, spent, clock, teller.line, counting, hands.executor), teller, log


def decided(folder: Path, what: str, decide: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What measured times decided: as before where it was kept, so that a resumed race is the same."""
    file = folder / f"{what}.json"
    if not file.is_file():
        write_json_atomic(file, decide())
    return dict(read_json(file))
