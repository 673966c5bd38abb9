"""Computes the parts of long studies, and keeps finished ones: an interrupted study goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from innerloop.core.files import plain, read_json, write_json_atomic
from innerloop.core.resources import available_cores
from innerloop.runs.executors import as_finished, open_executor
from innerloop_studies.reproduce import torch_version

Job = TypeVar("Job")
WORKERS = 2  # processes of one thread each on this machine: studies are sized for two cores
CLUSTER: ContextVar[str | None] = ContextVar("cluster", default=None)
"""Where parts are computed instead: ``innerloop reproduce --cluster``."""
FOLDER: ContextVar[Path] = ContextVar("folder", default=Path("runs") / "reproduce-parts")
"""Where finished parts are kept: ``innerloop reproduce --parts``."""


def compute_parts(
    name: str,
    version: int,
    compute: Callable[..., Any],
    jobs: Sequence[Job],
    *,
    seen: Callable[[Job], Mapping[str, Any]] | None = None,
    folder: Path | None = None,
) -> Iterator[Any]:
    """``compute(**job)`` of every job as plain data, in order; what is kept is not computed again."""
    # kept by name of the study (or of what several share), its version, what ``compute`` is given, torch, and
    # what is ``seen`` besides, such as data. Computed anywhere: ``compute`` is a function of a module
    given: list[dict[str, Any]] = [getattr(job, "_asdict", lambda job=job: dict(job))() for job in jobs]
    about = {"version": version, "torch": torch_version(), "of": compute.__qualname__}
    keys = [
        plain({**about, "settings": settings, "seen": dict(seen(job)) if seen else {}})
        for job, settings in zip(jobs, given, strict=True)
    ]
    files = [(folder or FOLDER.get()) / name / f"{digest(key)}.json" for key in keys]
    found = [read_json(file) if file.is_file() else {} for file in files]
    values = {i: one["value"] for i, one in enumerate(found) if one.get("key") == keys[i]}
    missing, shown = [i for i in range(len(jobs)) if i not in values], 0
    workers = max(1, min(WORKERS, available_cores(), len(missing)))
    with open_executor(workers if CLUSTER.get() is None else None, CLUSTER.get()) as executor:
        finished = as_finished(executor, _value, [(compute, given[i]) for i in missing])
        for new in chain([None], finished):
            if new is not None:
                i, value = missing[new[0]], new[1]
                values[i] = value
                files[i].parent.mkdir(parents=True, exist_ok=True)
                write_json_atomic(files[i], {"key": keys[i], "value": value})
            while shown in values:
                yield values[shown]
                shown += 1


def digest(key: Any) -> str:
    """Sixteen digits for what a part depends on."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]


def _value(job: tuple[Callable[..., Any], dict[str, Any]]) -> Any:
    compute, settings = job
    return plain(compute(**settings))
