"""Work that processes on any machines share through a folder: each piece is one process's own until it dies.

A claim is a file. Whoever comes first makes ``NAME~1``; file systems, network disks included, let only one
process make it. Whoever takes over a claim makes ``NAME~2``, and so on: the highest number holds. No file is
ever renamed or removed, so of two that take over at once only one succeeds, and the process that lost its
claim sees that it did.

The holder counts beats in its file. It is given up for dead once its process is gone, which can be told on
the same machine, or once its count has stood still for the lease, by the clock of whoever watches: clocks of
different machines are never compared, and one that jumps does no harm.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from innerloop.core.errors import UserError
from innerloop.core.files import read_object, write_json_atomic
from innerloop.runs.process import alive, identity

LEASE = 60.0
"""Seconds without a sign of life after which a process of another machine is given up for dead."""

BEATS = 5
"""Signs of life per lease: a slow disk may swallow some."""

_NAME = re.compile(r"[\w.=+-]+")


class Claim:
    """A piece of work that is this process's own; from :meth:`Claims.take`. Also a context manager."""

    def __init__(self, path: Path, following: Path, about: dict[str, Any], lease: float) -> None:
        self._path, self._following, self._about = path, following, about
        self._ended, self._writing = threading.Event(), threading.Lock()
        threading.Thread(target=self._beat, args=(lease / BEATS,), daemon=True).start()

    @property
    def lost(self) -> bool:
        """Whether another process has taken over: this one was silent for too long, and must stop."""
        return self._following.exists()

    def release(self) -> None:
        """Lets go: the work is done, or another process may do it. Harmless when called twice."""
        with self._writing:
            if not self._ended.is_set():
                self._ended.set()
                self._write({**self._about, "released": True})

    def _beat(self, every: float) -> None:
        while not self._ended.wait(every):
            with self._writing:
                if not self._ended.is_set():
                    self._about["beat"] += 1
                    self._write(self._about)

    def _write(self, about: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # a full disk, or one that does not answer: the lease runs out
            write_json_atomic(self._path, about)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class _Seen(NamedTuple):
    """What a watcher saw of a claim: since when it has stood still, and when it was looked at last."""

    state: tuple[Any, ...]
    since: float
    last: float


class Claims:
    """The claims in a folder, as one process sees them. Threads may share it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ours, theirs = Claims(Path(folder)), Claims(Path(folder))
    ...     with ours.take("part-1"):
    ...         print(theirs.take("part-1"))
    ...     print(theirs.take("part-1").lost)
    None
    False
    """

    def __init__(
        self, folder: Path, lease: float = LEASE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.folder, self._lease, self._clock = folder, lease, clock
        self._seen: dict[str, _Seen] = {}
        self._lock = threading.Lock()
        self._here = _here()

    def take(self, name: str) -> Claim | None:
        """The claim on a piece of work, or None while another process, or thread, holds it."""
        if not _NAME.fullmatch(name):
            raise ValueError(f"no name of a claim: {name!r}")
        with self._lock:
            number = self._latest(name)
            if number and not self._given_up(name, number):
                return None
            self._seen.pop(name, None)
            return self._make(name, number + 1)

    def holder(self, name: str) -> str:
        """Who holds a claim, in words."""
        told = self._read(name, self._latest(name))
        known = isinstance(told.get("pid"), int) and isinstance(told.get("host"), str)
        return f"process {told['pid']} on {told['host']}" if known else "another process"

    @contextlib.contextmanager
    def alone(self, name: str, every: float = 0.1) -> Iterator[None]:
        """Waits for a claim and holds it while the block lasts: for what is quickly done, one at a time."""
        while (claim := self.take(name)) is None:
            time.sleep(every)
        with claim:
            yield

    def _path(self, name: str, number: int) -> Path:
        return self.folder / f"{name}~{number}"

    def _latest(self, name: str) -> int:
        number = 0
        while self._path(name, number + 1).exists():
            number += 1
        return number

    def _read(self, name: str, number: int) -> dict[str, Any]:
        try:
            return read_object(self._path(name, number))
        except (OSError, UserError):  # half-written, or damaged: it says nothing, and the lease decides
            return {}

    def _given_up(self, name: str, number: int) -> bool:
        told = self._read(name, number)
        if told.get("released") is True or _is_gone(told, self._here):
            return True
        state, now = (number, told.get("token"), told.get("beat")), self._clock()
        lease = told.get("lease")
        wait = float(lease) if isinstance(lease, (int, float)) and 0 < lease < 86400 else self._lease
        before = self._seen.get(name)
        # a watcher that was itself stopped has not watched: holder and watcher may have slept together
        still = before is not None and before.state == state and now - before.last <= wait / 2
        self._seen[name] = _Seen(state, before.since if before and still else now, now)
        return still and now - self._seen[name].since > wait

    def _make(self, name: str, number: int) -> Claim | None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(name, number)
        try:
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return None
        about = {**_here(), "token": uuid.uuid4().hex, "lease": self._lease, "beat": 0}
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(about, file)
            file.flush()
            os.fsync(file.fileno())
        return Claim(path, self._path(name, number + 1), about, self._lease)


def _here() -> dict[str, Any]:
    """What tells this process from all others, of containers on the same machine as well."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = None
    return {**identity(), "pid_space": space}


def _is_gone(told: Mapping[str, Any], here: Mapping[str, Any]) -> bool:
    """Whether the holder's process has certainly ended; only known where this process could see it."""
    same = all(here[key] is not None and told.get(key) == here[key] for key in ("host", "boot", "pid_space"))
    return same and alive(told) is False
