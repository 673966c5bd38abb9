"""Computes the parts of long studies, and keeps finished ones: an interrupted study goes on where it was."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import torch

from innerloop.core.children import end_with_parent
from innerloop.core.cores import available_cores
from innerloop.core.files import plain, read_json, write_json_atomic
from innerloop.training.execution.starting import beginning, process_pool
from innerloop_studies.reproduce import torch_version

Job = TypeVar("Job")
FOLDER = Path("runs") / "reproduce-parts"


def compute_parts(
    name: str,
    version: int,
    compute: Callable[..., Any],
    jobs: Sequence[Job],
    *,
    seen: Callable[[Job], Mapping[str, Any]] | None = None,
    folder: Path | None = None,
) -> Iterator[Any]:
    """``compute(**job)`` of every job as plain data, in order; what is kept is not computed again.

    A part is kept by the name of the study (or of what several share), its version, what ``compute`` is
    given, the version of torch, and what is ``seen`` besides, such as data of one's own. Several jobs are
    computed by two processes of one thread each where there are two cores: ``compute`` is a function of a
    module.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as there:
    ...     list(compute_parts("x", 1, dict, [{"a": 1}, {"a": 2}], folder=Path(there)))
    [{'a': 1}, {'a': 2}]
    """
    given: list[dict[str, Any]] = [getattr(job, "_asdict", lambda job=job: dict(job))() for job in jobs]
    about = {"version": version, "torch": torch_version(), "of": compute.__qualname__}
    keys = [
        plain({**about, "settings": settings, "seen": dict(seen(job)) if seen else {}})
        for job, settings in zip(jobs, given, strict=True)
    ]
    files = [(folder or FOLDER) / name / f"{digest(key)}.json" for key in keys]
    found = [read_json(file) if file.is_file() else {} for file in files]
    values = {i: one["value"] for i, one in enumerate(found) if one.get("key") == keys[i]}
    missing = {i: given[i] for i in range(len(jobs)) if i not in values}
    shown = 0
    for new in chain([None], _computed(compute, missing, len(jobs))):
        if new is not None:
            i, value = new
            values[i] = value
            files[i].parent.mkdir(parents=True, exist_ok=True)
            write_json_atomic(files[i], {"key": keys[i], "value": values[i]})
        while shown in values:
            yield values[shown]
            shown += 1


def digest(key: Any) -> str:
    """Sixteen digits for what a part depends on."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]


def _computed(
    compute: Callable[..., Any], missing: Mapping[int, dict[str, Any]], jobs: int
) -> Iterator[tuple[int, Any]]:
    """Numbers of jobs with their values, as they are finished."""
    workers = min(2, available_cores(), jobs)
    if workers < 2 or not missing:
        yield from ((i, _value(compute, settings)) for i, settings in missing.items())
        return
    with process_pool(workers, _begin, os.getpid()) as pool:
        with beginning():
            futures = {pool.submit(_value, compute, settings): i for i, settings in missing.items()}
        yield from ((futures[future], future.result()) for future in as_completed(futures))


def _value(compute: Callable[..., Any], settings: dict[str, Any]) -> Any:
    return plain(compute(**settings))


def _begin(parent: int) -> None:
    """A forked process must not wait for threads of its parent, and four threads would share two cores."""
    end_with_parent(parent)
    torch.set_num_threads(1)
