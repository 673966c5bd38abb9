"""Jobs in parallel processes of one thread each: candidates share no data, and cores are divided."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from typing import TypeVar

import torch

from innerloop.core.children import end_with_parent
from innerloop.execution.starting import beginning, process_pool

Job = TypeVar("Job")
Value = TypeVar("Value")


def in_processes(
    work: Callable[[Job], Value], jobs: Sequence[Job], workers: int
) -> Iterator[tuple[int, Value]]:
    """The place of every job and its value, as they finish.

    When the consumer stops, or is interrupted, jobs that are under way are ended at once: a job must keep
    what it finishes by itself, whole or not at all.

    Args:
        work: a function of a module, since another process looks it up by name.
        jobs: what it is given.
        workers: processes; with one, the jobs run here.

    >>> sorted(in_processes(abs, [-1, 2], workers=1))
    [(0, 1), (1, 2)]

    Raises:
        UserError: a process was killed from outside.
    """
    workers = min(workers, len(jobs))
    if workers < 2:
        for place, job in enumerate(jobs):
            yield place, work(job)
        return
    with process_pool(workers, _begin, os.getpid()) as pool:
        with beginning():
            places = {pool.submit(work, job): place for place, job in enumerate(jobs)}
        for future in as_completed(places):
            yield places[future], future.result()


def _begin(parent: int) -> None:
    """One thread; Ctrl-C at the terminal reaches the parent alone, and no child survives it."""
    torch.set_num_threads(1)
    os.setpgid(0, 0)
    end_with_parent(parent)
