"""Parts of reproductions that processes on any machines share through a folder.

No part is computed by two processes at the same time, those of a process that died are taken over, and none
waits for a part while there is another one to compute.

:mod:`innerloop_studies.reproduce.parts` is left as it is: finished parts are kept for a hash of the source
behind them, and it stands behind many. :func:`shared` puts functions of the same names into its place for a
while.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from innerloop.core.children import end_with_parent
from innerloop.core.cores import available_cores
from innerloop.core.files import plain
from innerloop.runs.claims import Claims
from innerloop.training.execution.starting import beginning, process_pool
from innerloop_studies.reproduce import parts
from innerloop_studies.reproduce.sources import source_hash

Job = TypeVar("Job")
Value = TypeVar("Value")
Tried = tuple[bool, Any]
"""Whether a job was done here or before, and its value."""

FOLDER = "reproduce-parts"
POLL = 1.0
"""Seconds between looks at parts that other processes compute."""

_POSTPONED: ContextVar[bool] = ContextVar("postponed", default=False)
_SHARING: ContextVar[Sharing | None] = ContextVar("sharing", default=None)


class _ElsewhereError(Exception):
    """Another process computes this part."""


class _MissingError(Exception):
    """Nobody has computed this part yet."""


class Sharing:
    """Stands in for :mod:`innerloop_studies.reproduce.parts`, with claims on parts in a shared folder."""

    def __init__(self, folder: Path, claims: Claims | None = None) -> None:
        self.place, self.folder = folder, folder / FOLDER
        self.claims = claims or Claims(self.folder / "claims")
        self._remembered = parts.remembered

    def remembered(
        self,
        name: str,
        compute: Callable[..., Any],
        settings: Mapping[str, Any],
        folder: Path | None = None,
        seen: Mapping[str, Any] | None = None,
    ) -> Any:
        """As in ``parts``; a part that another process computes is waited for, or comes later in a series."""
        where = folder or self.folder
        if source_hash(compute.__module__) is None:  # never kept
            return self._remembered(name, compute, settings, where, seen)

        @functools.wraps(compute)  # the same name, hence the same part
        def absent(**_: Any) -> Any:
            """Says that the part is not kept yet."""
            raise _MissingError

        while True:
            try:
                return self._remembered(name, absent, settings, where, seen)
            except _MissingError:
                pass
            claim = self.claims.take(_claim_name(name, compute, settings, seen))
            if claim is not None:
                with claim:
                    return self._remembered(name, compute, settings, where, seen)
            if _POSTPONED.get():
                raise _ElsewhereError
            time.sleep(POLL)

    def two_at_a_time(
        self, compute: Callable[[Job], Value], jobs: Sequence[Job]
    ) -> Iterator[tuple[Job, Value]]:
        """As in ``parts``, in order; those that other processes compute are looked at again at the end."""
        attempt = functools.partial(_attempt, compute)
        workers = min(2, available_cores(), len(jobs))
        if workers < 2:
            yield from in_any_order(lambda some: map(attempt, some), jobs)
            return
        with process_pool(workers, _begin_in_pool, self.place, os.getpid()) as pool:

            def begun(some: list[Job]) -> Iterator[Tried]:
                """What the processes of the pool make of these."""
                with beginning():
                    return pool.map(attempt, some)

            yield from in_any_order(begun, jobs)


def _claim_name(
    name: str, compute: Callable[..., Any], settings: Mapping[str, Any], seen: Mapping[str, Any] | None
) -> str:
    key = [name, source_hash(compute.__module__), compute.__qualname__, dict(settings), dict(seen or {})]
    return hashlib.sha256(json.dumps(plain(key), sort_keys=True).encode()).hexdigest()[:24]


def _attempt(compute: Callable[[Job], Value], job: Job) -> Tried:
    token = _POSTPONED.set(True)
    try:
        return True, compute(job)
    except _ElsewhereError:
        return False, None
    finally:
        _POSTPONED.reset(token)


def in_any_order(
    attempts: Callable[[list[Job]], Iterable[Tried]], jobs: Sequence[Job]
) -> Iterator[tuple[Job, Any]]:
    """Jobs with their values, in order; what could not be done is tried again until everything is done.

    >>> tried = iter([(False, None), (True, 20), (True, 10)])
    >>> list(in_any_order(lambda some: [next(tried) for _ in some], [1, 2]))
    [(1, 10), (2, 20)]
    """
    values: dict[int, Any] = {}
    left, shown = list(range(len(jobs))), 0
    while left:
        for i, (done, value) in zip(left, attempts([jobs[i] for i in left]), strict=True):
            if done:
                values[i] = value
            while shown in values:
                yield jobs[shown], values[shown]
                shown += 1
        after = [i for i in left if i not in values]
        if len(after) == len(left):
            time.sleep(POLL)
        left = after


def ahead(name: str, compute: Callable[..., Any], many: Sequence[Mapping[str, Any]]) -> None:
    """Computes the parts of a series in any order where processes share them; elsewhere does nothing.

    For a series that is otherwise computed one by one, so that processes do not wait for each other.
    """
    sharing = _SHARING.get()
    if sharing is not None:
        one = functools.partial(sharing.remembered, name, compute)
        for _ in in_any_order(lambda some: map(functools.partial(_attempt, one), some), many):
            pass


@contextmanager
def shared(folder: Path) -> Iterator[Sharing]:
    """Within it, parts are kept in ``folder`` and shared with all processes that do the same.

    Reproductions that have been imported before keep the functions that they imported.
    """
    sharing, before = Sharing(folder), _SHARING.get()
    kept = _put_in_place(sharing)
    try:
        yield sharing
    finally:
        _SHARING.set(before)
        for name, function in kept.items():
            setattr(parts, name, function)


def _put_in_place(sharing: Sharing) -> dict[str, Callable[..., Any]]:
    """Lets ``parts`` share; gives what was there before."""
    before = {name: getattr(parts, name) for name in ("remembered", "two_at_a_time")}
    _SHARING.set(sharing)
    for name in before:
        setattr(parts, name, getattr(sharing, name))
    return before


def _begin_in_pool(folder: Path, parent: int) -> None:
    """A process of a pool; where it was started afresh and not forked, it does not share yet."""
    import torch

    end_with_parent(parent)
    torch.set_num_threads(1)
    if _SHARING.get() is None:
        _put_in_place(Sharing(folder))
