"""Jobs in parallel processes of one thread each: candidates share no data, and cores are divided."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TypeVar

import torch

from innerloop.core.children import end_with_parent
from innerloop.training.execution.starting import beginning, process_pool

Job = TypeVar("Job")
Value = TypeVar("Value")

LOOK = 0.1
"""Seconds between looks at the clock, where there is a time to keep."""


class OutOfTimeError(Exception):
    """Jobs were ended because their time was up."""


def in_processes(
    work: Callable[[Job], Value],
    jobs: Sequence[Job],
    workers: int,
    left: Callable[[], float] | None = None,
) -> Iterator[tuple[int, Value]]:
    """The place of every job and its value, as they finish.

    When the consumer stops, or is interrupted, jobs that are under way are ended at once: a job must keep
    what it finishes by itself, whole or not at all.

    >>> sorted(in_processes(abs, [-1, 2], workers=1))
    [(0, 1), (1, 2)]
    """
    workers = min(workers, len(jobs))
    if workers < 2 and (left is None or not jobs):
        for place, job in enumerate(jobs):
            yield place, work(job)
        return
    with process_pool(workers, _begin, os.getpid()) as pool:
        with beginning():
            places = {pool.submit(work, job): place for place, job in enumerate(jobs)}
        waiting: set[Future[Value]] = set(places)
        while waiting:
            done, waiting = wait(waiting, None if left is None else LOOK, FIRST_COMPLETED)
            for future in done:
                yield places[future], future.result()
            if waiting and left is not None and left() <= 0:
                raise OutOfTimeError


def _begin(parent: int) -> None:
    """One thread; Ctrl-C at the terminal reaches the parent alone, and no child survives it."""
    torch.set_num_threads(1)
    os.setpgid(0, 0)
    end_with_parent(parent)
