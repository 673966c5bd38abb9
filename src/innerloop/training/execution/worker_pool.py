"""Worker processes with one thread each: started once, replaced where one dies, ended with their owner."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import torch

from innerloop.core.child_processes import safe_path, start_method
from innerloop.core.resources import process_fields
from innerloop.training.execution.shared_memory import Arena
from innerloop.training.execution.worker import (
    Answer,
    FunctionMessage,
    SharedInputs,
    TaskMessage,
    TorchSettings,
    WorkersError,
    serve,
)

LIVES = 3  # workers that die at the same task of a batch before it is taken for the cause
PATIENCE = 5.0  # seconds in which a worker that has nothing to do must have ended
CHECK_EVERY = 5.0
"""Seconds between looks at workers that do not answer."""
HUNG_AFTER = 120.0
"""Seconds without an answer and without processor time after which a worker hangs."""
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has one way to end a process


class WorkerWarning(RuntimeWarning):
    """A worker process died, and another does its work: nothing is lost but time."""


class Worker(NamedTuple):
    """A process, our end of the connection to it, and the tasks that it was given and has not answered."""

    number: int
    process: BaseProcess
    connection: Connection
    jobs: deque[TaskMessage]

    def __str__(self) -> str:
        return f"worker {self.number + 1} (process {self.process.pid})"


_ABANDONED: list[Worker] = []  # killed, and not waited for yet


class WorkerPool:
    """Processes that run one function on tasks in shared memory."""

    def __init__(self, function: Callable[..., Any], count: int) -> None:
        method = start_method()
        self.count = count
        self._context: Any = multiprocessing.get_context(method)
        self._function, self._forked = FunctionMessage(function, method), method == "fork"
        self._workers: dict[int, Worker] = {}
        self._arena: Arena | None = None
        self._owner = os.getpid()
        self._hung: set[int] = set()

    @property
    def pids(self) -> list[int]:
        """Of the processes, in their order."""
        return [self._workers[number].process.pid or 0 for number in sorted(self._workers)]

    def arena(self, size: int, tasks: int) -> Arena:
        """Shared memory of this many bytes or more, and workers at it; they start again if it must grow."""
        if self._arena is None or self._arena.size < size:
            grown = self._arena is not None
            self.stop()
            self._arena = Arena(self._context, size + size // 2 if grown else size)
        for number in range(min(self.count, tasks)):
            if number not in self._workers:
                self._start(number)
        return self._arena

    def run(self, setting: SharedInputs, jobs: Sequence[TaskMessage]) -> list[Answer]:
        """Every task's answer, in the order of the tasks; up to the first error, if there is one."""
        try:
            return self._share_out(setting, jobs)
        except BaseException:
            self.stop()  # nobody knows what is under way: a later call starts afresh
            raise

    def stop(self) -> None:
        """Ends the processes: at once if they are at work. A process that was forked from ours ends none."""
        if os.getpid() != self._owner:
            return
        workers, self._workers = list(self._workers.values()), {}
        for worker in workers:
            # in words: processes forked since then have copies of our end, so closing it may tell nobody
            with contextlib.suppress(OSError):
                worker.connection.send(None)
            worker.connection.close()
            if worker.jobs:
                worker.process.kill()
        for worker in workers:
            worker.process.join(PATIENCE)
            if worker.process.exitcode is None:
                worker.process.kill()
                worker.process.join()

    def abandon(self) -> None:
        """Ends the processes from within a garbage collection: without waiting for anything."""
        # torch may hold a lock meanwhile, for which a thread would wait that we wait for: signals do not wait
        if os.getpid() != self._owner:
            return
        workers, self._workers = list(self._workers.values()), {}
        for worker in workers:
            if worker.process.pid:
                with contextlib.suppress(OSError):
                    os.kill(worker.process.pid, KILL)
        _ABANDONED.extend(
            workers
        )  # their connections are closed, and they are waited for, by who starts others

    def _start(self, number: int) -> None:
        _ABANDONED.clear()  # starting a process waits for those that have ended
        if multiprocessing.current_process().daemon:
            raise WorkersError(
                "this process may not start others (it is a daemon): set {execution}=threads.",
                names=("execution",),
            )
        mine, theirs = self._context.Pipe()
        others = [worker.connection for worker in self._workers.values()]
        ours = TorchSettings(torch.get_default_dtype(), torch.get_float32_matmul_precision())
        given = (self._function, self._arena, theirs, [mine, *others] if self._forked else [], ours)
        process = self._context.Process(
            target=serve, args=given, name=f"innerloop-worker-{number + 1}", daemon=True
        )
        try:
            # forking beside threads is deprecated for what they may hold; ours wait, and workers forget them
            with safe_path(), warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
        except OSError as error:
            raise WorkersError(
                f"no worker process could be started ({error}): set {{execution}}=threads.",
                names=("execution",),
            ) from error
        finally:
            theirs.close()
        self._workers[number] = Worker(number, process, mine, deque())

    def _share_out(self, setting: SharedInputs, jobs: Sequence[TaskMessage]) -> list[Answer]:
        """Hands out tasks in their order, fewer and fewer at a time, so that nobody waits long at the end."""
        waiting, answers, deaths = deque(jobs), dict[int, Answer](), Counter[int]()
        failed, watch = False, HangDetector()
        while True:
            for number in list(self._workers):
                if waiting and not failed and not self._workers[number].jobs:
                    share = max(1, len(waiting) // (2 * len(self._workers)))
                    part = [waiting.popleft() for _ in range(share)]
                    waiting.extendleft(reversed(self._give(number, setting, part)))
            busy = {worker.connection: worker for worker in self._workers.values() if worker.jobs}
            if not busy and (failed or not waiting):
                break
            if not busy:  # all that were asked had died: ask those that came in their place
                continue
            ready = wait(list(busy), CHECK_EVERY)
            if not ready:
                self._end_hanging(busy.values(), watch)
            for connection in ready:
                worker = busy[connection]  # type: ignore[index]
                try:
                    answer = worker.connection.recv()
                except (EOFError, OSError):
                    deaths[worker.jobs[0].number] += 1
                    waiting.extendleft(reversed(worker.jobs))
                    self._replace(worker, deaths[worker.jobs[0].number])
                else:
                    worker.jobs.popleft()
                    answers[answer.number] = answer
                    failed = failed or answer.error is not None
        return [answers[number] for number in sorted(answers)]

    def _end_hanging(self, workers: Iterable[Worker], watch: HangDetector) -> None:
        """Kills those that neither answer nor compute; their connection tells of it, as of any death."""
        for worker in workers:
            pid = worker.process.pid or 0
            if pid not in self._hung and watch.hangs(pid):
                self._hung.add(pid)
                worker.process.kill()

    def _give(self, number: int, setting: SharedInputs, part: list[TaskMessage]) -> list[TaskMessage]:
        """Sends tasks to a worker; gives them back if it died in its sleep, and has another in its place."""
        worker = self._workers[number]
        worker.jobs.extend(part)  # first: whoever is interrupted now must know that it is at work
        try:
            worker.connection.send((setting, part))
        except OSError:
            worker.jobs.clear()
            self._replace(worker, 0)
            return part
        return []

    def _replace(self, worker: Worker, deaths: int) -> None:
        """A new worker for one that died, unless its task killed others before it."""
        del self._workers[worker.number]
        worker.connection.close()
        worker.process.join()
        how = describe_exit(worker.process.exitcode)
        if worker.process.pid in self._hung:
            self._hung.discard(worker.process.pid)
            how = f"neither answered nor computed for {HUNG_AFTER:g} seconds and was killed"
        if deaths >= LIVES:
            raise WorkersError(
                f"{worker} {how} at task {worker.jobs[0].number} of the batch, as {LIVES - 1} did before it: "
                "set {execution}=loop, which needs least memory.",
                names=("execution",),
            )
        what = "does its tasks again" if worker.jobs else "takes its place"
        warnings.warn(f"{worker} {how}; a new one {what}, and no number changes.", WorkerWarning, 2)
        self._start(worker.number)


def describe_exit(code: int | None) -> str:
    """How a process ended, in words."""
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    why = " (kill -9, or a system out of memory)" if name == "SIGKILL" else ""
    return f"was ended by {name}{why}"


class HangDetector:
    """Which processes use no processor time while somebody waits for them: those that wait for ever."""

    # looks count and not the clock: if this process was stopped too (Ctrl-Z, sleep), nobody waited

    def __init__(self) -> None:
        self._used: dict[int, int] = {}
        self._still: dict[int, float] = {}

    def hangs(self, pid: int) -> bool:
        """Asked after every :data:`CHECK_EVERY` seconds of waiting; where no one can tell, nothing hangs."""
        used = processor_ticks(pid)
        if used is None or used != self._used.get(pid):
            self._still[pid] = 0.0
            if used is not None:
                self._used[pid] = used
            return False
        self._still[pid] += CHECK_EVERY
        return self._still[pid] >= HUNG_AFTER


def processor_ticks(pid: int) -> int | None:
    """Processor time that a process has used, in the ticks of its system; None where that is not told."""
    fields = process_fields(pid)
    return int(fields[11]) + int(fields[12]) if fields else None


@contextmanager
def worker_warnings(say: Callable[[str], None]) -> Iterator[None]:
    """Within it every :class:`WorkerWarning` is a line for ``say``; other warnings go where they went."""
    before = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        """Gives a worker's warning to ``say``, and any other to what showed warnings before."""
        if issubclass(category, WorkerWarning):
            say(f"warning: {message}")
        else:
            before(message, category, *where, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", WorkerWarning)
        warnings.showwarning = show  # restored with the filters
        yield
