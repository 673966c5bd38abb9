"""The one way to carry out independent jobs: in processes of this machine, or on a Dask cluster."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from innerloop.core.child_processes import (
    GRACE,
    KILLED,
    end_pool,
    end_with_parent,
    new_pool,
    starting_workers,
)
from innerloop.core.errors import UserError
from innerloop.core.resources import available_cores
from innerloop.core.stderr import tell

Job = TypeVar("Job")
Value = TypeVar("Value")

RETRIES = 3
"""How often worker processes may be killed before that is called an error."""

LOOK = 0.1
"""Seconds between looks at the clock, where there is a time to keep."""

LOST = (
    "the cluster's scheduler is gone; what is finished is kept: run the same command again once it is back."
)


class OutOfTimeError(Exception):
    """Jobs were ended because their time was up."""


@contextlib.contextmanager
def open_executor(
    workers: int | None = None, cluster: str | None = None, *, separate: bool = False
) -> Iterator[Executor]:
    """An executor while the context lasts; jobs that are under way at its end are ended."""
    # workers: one per core by default, jobs of slurm; a single one is this process, unless ``separate``
    if workers is not None and workers < 1:
        raise UserError(f"workers={workers} is not a number of processes: give 1 or more.")
    if cluster is not None:
        from innerloop.runs.cluster import open_cluster

        with open_cluster(cluster, workers) as executor:
            yield executor
        return
    workers = workers or available_cores()
    if workers == 1 and not separate:
        yield SerialExecutor()
        return
    pool = ProcessExecutor(workers)
    try:
        yield pool
    finally:
        pool.end()


def as_finished(
    executor: Executor,
    function: Callable[[Job], Value],
    jobs: Iterable[Job],
    *,
    most: Callable[[], int] | None = None,
    left: Callable[[], float] | None = None,
    say: Callable[[str], object] = tell,
) -> Iterator[tuple[int, Value]]:
    """The place of every job and its value, as they finish; a job whose worker was killed is done again."""
    # ``most`` jobs may be under way at a time; they are ended when no seconds are ``left``
    source, again = iter(enumerate(jobs)), list[tuple[int, Job]]()
    running, killed = dict[Future[Value], tuple[int, Job]](), 0
    try:
        while True:
            while most is None or len(running) < most():
                following = again.pop() if again else next(source, None)
                if following is None:
                    break
                running[executor.submit(function, following[1])] = following
                if isinstance(executor, SerialExecutor):
                    break
            if not running:
                return
            done, _ = wait(running, None if left is None else LOOK, FIRST_COMPLETED)
            broken = False
            for future in sorted(done, key=lambda future: running[future][0]):
                if _worker_was_killed(future):
                    broken = True
                    continue
                place, _ = running.pop(future)
                yield place, future.result()
            if broken:
                killed += 1
                time.sleep(GRACE)  # whoever ends processes may be about to end this one
                if killed > RETRIES:
                    raise UserError(KILLED)
                say("a worker process was killed, perhaps for want of memory; its work is done again")
                again += running.values()  # the others were ended with it
                running.clear()
            elif left is not None and left() <= 0 and running:
                raise OutOfTimeError
    finally:
        for future in running:
            future.cancel()


def _worker_was_killed(future: Future[Any]) -> bool:
    """Whether a job is to be done again; where a cluster has tried that, or is gone, that is an error."""
    try:
        error = future.exception()
    except CancelledError:
        raise UserError(LOST) from None
    if type(error).__name__ == "KilledWorker":  # Dask's, after several workers were
        raise UserError(KILLED) from None
    return isinstance(error, BrokenProcessPool)


def slots(executor: Executor) -> int:
    """How many jobs an executor carries out at a time; of a cluster, now."""
    count = getattr(executor, "slots", None)
    return max(1, count()) if count is not None else 1


def in_order(executor: Executor, function: Callable[[Job], Value], jobs: Sequence[Job]) -> Iterator[Value]:
    """The values of jobs in the order of the jobs, each as soon as those before it are there."""
    ready: dict[int, Value] = {}
    following = 0
    for place, value in as_finished(executor, function, jobs):
        ready[place] = value
        while following in ready:
            yield ready.pop(following)
            following += 1


class SerialExecutor(Executor):
    """Jobs in this process, one after the other, on one thread as workers have it."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Carries out a job at once; an interrupt ends it."""
        from innerloop.training.execution.plan import Plan, torch_threads

        future = Future[Any]()
        try:
            with torch_threads(Plan("loop")):
                future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class ProcessExecutor(Executor):
    """Worker processes of this machine; where one is killed, the next job finds new ones."""

    def __init__(self, workers: int, method: str | None = None) -> None:
        self._workers, self._method = workers, method
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Hands a job out."""
        with starting_workers():
            try:
                return self._opened().submit(function, *args, **kwargs)
            except BrokenProcessPool:
                self.end()
                return self._opened().submit(function, *args, **kwargs)

    def slots(self) -> int:
        """How many jobs are carried out at a time."""
        return self._workers

    def _opened(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = new_pool(self._workers, _begin, os.getpid(), method=self._method)
        return self._pool

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Lets go of the processes, after what they are at work on if ``wait``."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait, cancel_futures=cancel_futures)

    def end(self) -> None:
        """Ends the processes at once; what they were at work on is lost."""
        pool, self._pool = self._pool, None
        if pool is not None:
            end_pool(pool)


def _begin(parent: int) -> None:
    """In a worker: one thread; Ctrl-C at the terminal reaches the parent alone, and no child survives it."""
    import torch

    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
    end_with_parent(parent)
    torch.set_num_threads(1)
