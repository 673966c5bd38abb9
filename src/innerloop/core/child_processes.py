"""Starting other processes, which import what this one would, never what lies in the current folder."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

_VARIABLE = "PYTHONSAFEPATH"
_PARENT = "INNERLOOP_PARENT"
SIGNALS = {signal.SIGINT, signal.SIGTERM}
GRACE = 0.3  # seconds between a signal to a worker and the same to its parent
KILLED = (
    "a worker process was killed, perhaps for want of memory; what is finished is kept: run the same "
    "command again, with fewer of them if it takes --jobs."
)
PATIENCE = 30.0  # seconds that a forked process may take to differentiate one number on a busy machine


def python_command(*arguments: str) -> list[str]:
    """The command that starts this interpreter again."""
    # without -P, a torch.py in a folder of somebody else's data would be imported
    return [sys.executable, "-P", *arguments]


def ends_with_parent() -> dict[str, str]:
    """Environment of a child that shall not outlive this process, however it ends (:func:`watch_parent`)."""
    return {_PARENT: str(os.getpid())}


def watch_parent(every: float = 1.0) -> None:
    """In a child: ends as after SIGTERM, with a checkpoint, once the process that started it is gone."""
    # a process that is killed cannot end its children; on Windows a parent's number stays
    parent = os.environ.pop(_PARENT, "")  # not for children of this one
    if parent.isdecimal() and os.name == "posix":
        _when_gone(int(parent), every, lambda: os.kill(os.getpid(), signal.SIGTERM))


def end_with_parent(parent: int) -> None:
    """In a worker of a pool: ends at once when the process that started it is gone."""
    # it would wait for its next job for ever, and hold what it was forked with: the lock of a run, for one
    if os.name == "posix":
        _when_gone(parent, 1.0, lambda: os._exit(1))


def _when_gone(parent: int, every: float, end: Callable[[], None]) -> None:
    def wait() -> None:
        while os.getppid() == parent:
            time.sleep(every)
        end()

    threading.Thread(target=wait, daemon=True).start()


@contextlib.contextmanager
def safe_path() -> Iterator[None]:
    """The same for processes that a library starts for us (those of a pool), while the context lasts."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


def start_method() -> str:
    """``fork`` where that is safe, else ``spawn``; what the program itself has set comes first."""
    # not safe with Apple's libraries nor with a GPU in use, and Windows has no fork
    import multiprocessing

    import torch

    # a name, or None if nobody chose; the system's own where a library has merely asked for it
    chosen: Any = multiprocessing.get_start_method(allow_none=True)
    by_itself = sys.platform == "linux" and not torch.cuda.is_initialized()
    forks = by_itself if chosen is None else chosen == "fork"
    return "fork" if forks and differentiates_when_forked() else "spawn"


def new_pool(
    workers: int, begin: Callable[..., None], *given: Any, method: str | None = None
) -> ProcessPoolExecutor:
    """A pool of processes that are started as :func:`start_method` says, and leave interrupts to this one."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context(method or start_method())
    return ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(begin, *given))


@contextlib.contextmanager
def starting_workers() -> Iterator[None]:
    """While processes of a pool may be started: no signal reaches one before it knows what to do with it."""
    # what is started meanwhile inherits that signals wait, until _begin has them wait no more
    mask = getattr(signal, "pthread_sigmask", None)  # Windows has none
    with safe_path():
        before = mask(signal.SIG_BLOCK, SIGNALS) if mask else None
        try:
            yield
        finally:
            if mask:
                mask(signal.SIG_SETMASK, before)


def _begin(begin: Callable[..., None], *given: Any) -> None:
    """Ctrl-C is this process's parent's business; SIGTERM ends it, without the words of an interrupt."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    begin(*given)


def end_pool(pool: ProcessPoolExecutor) -> None:
    """Ends the processes of a pool at once."""
    children = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for child in children:
        child.kill()


@functools.cache
def differentiates_when_forked() -> bool:
    """Whether a process that was forked from one that has differentiated may differentiate as well."""
    # where autograd knows of a device besides the processor it refuses to work in forks, and nothing says so
    # beforehand (seen in Debian's build for Vulkan; expected with a GPU)
    return _in_a_fork(lambda: _differentiates() and _in_a_fork(_differentiates))


def _differentiates() -> bool:
    import torch

    with torch.inference_mode(False), torch.enable_grad():
        x = torch.ones((), device="cpu", requires_grad=True)
        torch.autograd.grad(2 * x, x)
    return True


def _in_a_fork(work: Callable[[], bool]) -> bool:
    """Whether the work gives true in a process that is forked for it; not if it raises, dies or hangs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which the child does not wait for
        child = os.fork()
    if child == 0:
        works = False
        try:
            works = work()
        finally:
            os._exit(0 if works else 1)  # at once: nothing of the parent's is ended or written twice
    return _ended_well(child)


def _ended_well(child: int) -> bool:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            ended, status = os.waitpid(child, os.WNOHANG)
        except ChildProcessError:  # somebody else has waited for it: its answer is lost
            return False
        if ended:
            return os.waitstatus_to_exitcode(status) == 0
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            until += PATIENCE
        time.sleep(0.001)
