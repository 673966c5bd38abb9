"""Keeps finished parts of a long reproduction, so that an interrupted one goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from innerloop._version import __version__
from innerloop.core.children import safe_path
from innerloop.execution.plan import available_cores
from innerloop.runs.files import plain, read_json, write_json_atomic

Job = TypeVar("Job")
Value = TypeVar("Value")

FOLDER = Path("runs") / "reproduce-parts"


def remembered(
    name: str, key: Mapping[str, Any], compute: Callable[[], Any], folder: Path | None = None
) -> Any:
    """``compute()`` as plain data, or what it gave before for the same name, key and version.

    Args:
        name: of the reproduction.
        key: every setting the value depends on.
        compute: makes the value; it comes back as JSON would hold it.
        folder: where parts are kept; ``runs/reproduce-parts`` if omitted.

    >>> import tempfile, itertools
    >>> count = itertools.count()
    >>> with tempfile.TemporaryDirectory() as there:
    ...     [remembered("x", {"seed": 0}, lambda: next(count), Path(there)) for _ in range(2)]
    [0, 0]
    """
    text = json.dumps({"version": __version__, **plain(dict(key))}, sort_keys=True)
    file = (folder or FOLDER) / name / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if file.is_file():
        found = read_json(file)
        if found.get("key") == json.loads(text):
            return found["value"]
    value = plain(compute())
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(file, {"key": json.loads(text), "value": value})
    return value


def two_at_a_time(compute: Callable[[Job], Value], jobs: Sequence[Job]) -> Iterator[tuple[Job, Value]]:
    """Jobs with their values, in order; two processes of one thread each where there are two cores.

    ``compute`` is a function of a module, since the other process looks it up by name.

    >>> list(two_at_a_time(abs, [-1, 2]))
    [(-1, 1), (2, 2)]
    """
    import torch

    workers = min(2, available_cores(), len(jobs))
    if workers < 2:
        for job in jobs:
            yield job, compute(job)
        return
    # a forked process must not wait for threads of its parent, and four threads would share two cores
    with ProcessPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        with safe_path():  # some systems start the processes of a pool afresh
            values = pool.map(compute, jobs)
        yield from zip(jobs, values, strict=True)
