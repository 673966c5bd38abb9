"""Keeps finished parts of a long reproduction, so that an interrupted one goes on where it was."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from innerloop.core.children import end_with_parent
from innerloop.core.cores import available_cores
from innerloop.core.files import plain, read_json, write_json_atomic
from innerloop.training.execution.starting import beginning, process_pool
from innerloop_studies.reproduce.sources import library_versions, source_hash

Job = TypeVar("Job")
Value = TypeVar("Value")

FOLDER = Path("runs") / "reproduce-parts"


def remembered(
    name: str,
    compute: Callable[..., Any],
    settings: Mapping[str, Any],
    folder: Path | None = None,
    seen: Mapping[str, Any] | None = None,
) -> Any:
    """``compute(**settings)`` as plain data, or what it gave before for the same settings and source.

    The settings are all that ``compute`` is given, so that none can be missing from the key. Beside them
    the key holds a hash of the source (:mod:`innerloop_studies.reproduce.sources`) and the versions of torch
    and numpy: changed code computes anew. The source is that of the module ``compute`` stands in and of what
    this imports; a module that trains apart from the one that words the rows keeps its parts when words
    change. A function without a source file is computed each time.

    >>> import tempfile, itertools
    >>> count = itertools.count()
    >>> def drawn(seed): return seed + next(count)
    >>> with tempfile.TemporaryDirectory() as there:
    ...     [remembered("x", drawn, {"seed": 5}, Path(there)) for _ in range(2)]
    [5, 5]
    """
    source = source_hash(compute.__module__)
    if source is None:
        return plain(compute(**settings))
    key = {"source": source, **library_versions(), "of": compute.__qualname__, "settings": dict(settings)}
    key = plain(key | {"seen": dict(seen or {})})
    text = json.dumps(key, sort_keys=True)
    file = (folder or FOLDER) / name / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if file.is_file():
        kept = read_json(file)
        if kept.get("key") == key:
            return kept["value"]
    value = plain(compute(**settings))
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(file, {"key": key, "value": value})
    return value


def two_at_a_time(compute: Callable[[Job], Value], jobs: Sequence[Job]) -> Iterator[tuple[Job, Value]]:
    """Jobs with their values, in order; two processes of one thread each where there are two cores.

    ``compute`` is a function of a module, since the other process looks it up by name.

    >>> list(two_at_a_time(abs, [-1, 2]))
    [(-1, 1), (2, 2)]
    """
    workers = min(2, available_cores(), len(jobs))
    if workers < 2:
        for job in jobs:
            yield job, compute(job)
        return
    # a forked process must not wait for threads of its parent, and four threads would share two cores
    with process_pool(workers, _begin, os.getpid()) as pool:
        with beginning():
            values = pool.map(compute, jobs)
        yield from zip(jobs, values, strict=True)


def _begin(parent: int) -> None:
    import torch

    end_with_parent(parent)
    torch.set_num_threads(1)
