"""The run directory of a search: its manifest says what was asked, so that ``resume`` needs nothing else."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from innerloop.choose.pilot.asked import Asked
from innerloop.choose.pilot.settings import model_for
from innerloop.core.cores import available_cores
from innerloop.core.errors import UserError
from innerloop.core.files import read_json, write_json_atomic
from innerloop.data.source import ImageSource
from innerloop.experiment.recipe.settings import make_recipe, recipe_to_toml
from innerloop.experiment.recipe.trust import admit
from innerloop.experiment.together import ranks_here
from innerloop.runs.directory import create_run
from innerloop.runs.manifest import actual_status, kind_of, read_manifest, start_manifest, update_manifest
from innerloop.runs.progress import Progress, RunLog, progress
from innerloop.training.execution.plain import from_leader

KIND = "search"
MEASURED = "scores.jsonl"
RESULT = "result.json"

Say = Callable[[str], None]


class Sitting(NamedTuple):
    """One go at a search, which an interruption ends."""

    run: Path
    workers: int
    spent: float
    clock: Callable[[], float]
    say: Say
    counting: Callable[[int, str], AbstractContextManager[Progress]]
    ranks: int = 1
    leads: bool = True
    shared: bool = False

    @property
    def hands(self) -> int:
        """Jobs at a time, on all ranks together."""
        return self.workers * self.ranks

    @property
    def alone(self) -> Sitting:
        """The same, with no other rank taking part."""
        return self._replace(ranks=1)

    @property
    def measured(self) -> Path | None:
        """The file of measurements, on the rank that keeps it."""
        return self.run / MEASURED if self.leads else None

    @property
    def seconds(self) -> float:
        """All that the search has taken so far."""
        return self.spent + self.clock()


def begin(asked: Asked, source: ImageSource, *, validate: bool, argv: list[str] | None) -> Path:
    """A new run directory."""
    verb = "validate" if validate else "search"
    name = asked.recipe.name if asked.recipe.name.startswith("search-") else f"search-{asked.recipe.name}"
    run = create_run(Path(asked.recipe.run.folder), name.replace("search", verb, 1), asked.recipe.run.seed)
    about = {
        "kind": KIND,
        "asked": asked_for(asked, validate=validate),
        "data": {"name": source.name, "content_sha256": source.content_sha256},
    }
    start_manifest(run, argv, recipe_to_toml(asked.recipe), about)
    return run


def asked_for(asked: Asked, *, validate: bool) -> dict[str, Any]:
    """What was asked, as plain data."""
    return {
        "source": asked.source,
        "validate": validate,
        "settings": asked.settings.model_dump(),
        "recipe": asked.recipe.model_dump(exclude_none=True),
        "free": list(asked.free),
    }


def is_search(run: Path) -> bool:
    """Whether a run is one of ``innerloop search``."""
    return kind_of(run) == KIND


def reopened(run: Path, *, trust: bool = False, alone: bool = False) -> tuple[Asked, bool]:
    """What an interrupted search was asked, and whether it is a validation."""
    manifest = still_open(run, alone=alone)
    try:
        kept: dict[str, Any] = manifest["asked"]
        recipe = admit(make_recipe(kept["recipe"]), set(), str(run), trust)
        model = model_for(kept["validate"], kept["settings"]["space"]["name"])
        settings = model.model_validate(kept["settings"])
        return Asked(kept["source"], settings, recipe, tuple(kept["free"]), []), kept["validate"]
    except (KeyError, TypeError, ValidationError):
        raise UserError(
            f"{run / 'manifest.json'} does not say what was asked: begin the search anew."
        ) from None


def still_open(run: Path, *, alone: bool = False) -> dict[str, Any]:
    """The manifest of a run that can be gone on with."""
    manifest = read_manifest(run)
    status = actual_status(manifest)
    if status == "finished":
        raise UserError(f"{run} is finished: `innerloop report {run}` makes its page again.")
    if status == "running" and not alone:
        raise UserError(f"{run} is still running (process {manifest.get('pid')}): stop that first.")
    return manifest


def sit_down(
    run: Path, title: str, workers: int | None, *, show: bool, started: float, shared: bool = False
) -> tuple[Sitting, Progress, RunLog]:
    """One more go at a run: the sitting, and where people and the log are told of it."""
    log = RunLog(run / "log.txt")
    spent = float(read_manifest(run).get("spent") or 0.0)
    update_manifest(run, status="running", pid=os.getpid(), ranks=ranks_here())
    teller = Progress(1, title.partition(" ")[0], 0, sys.stderr if show else None, log, None)

    def counting(total: int, unit: str) -> AbstractContextManager[Progress]:
        return progress(total, title, show, log=log, unit=unit)

    def clock() -> float:
        return time.monotonic() - started

    hands = workers or available_cores()
    teller.line(f"run: {run}")
    return Sitting(run, hands, spent, clock, teller.line, counting, shared=shared), teller, log


def check_pictures(run: Path, source: ImageSource) -> None:
    """Refuses to go on with other pictures."""
    then = read_manifest(run)["data"]["content_sha256"]
    if then != source.content_sha256:
        raise UserError(
            f"the pictures of {source.name} have changed since {run} began: begin anew with the same command."
        )


def decided(sitting: Sitting, what: str, decide: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What measured times decided: as before where it was kept, so that a resumed search is the same."""
    file = sitting.run / f"{what}.json"

    def made() -> dict[str, Any]:
        if not file.is_file():
            write_json_atomic(file, decide())
        return dict(read_json(file))

    return dict(from_leader(made, sitting.ranks))
