"""How worker processes are started, for all that start some."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch

PATIENCE = 30.0  # seconds that a forked process may take to differentiate one number on a busy machine


def start_method() -> str:
    """``fork`` where that is safe, else ``spawn``; what the program itself has set comes first.

    A forked process has everything that its parent has, at once. Forking is not safe with Apple's libraries
    nor with a GPU in use, and Windows has no fork: there a process is started afresh, which takes seconds.
    So it is wherever torch would refuse to differentiate in a forked process, whatever was set:
    :func:`differentiates_when_forked`.
    """
    # a name, or None if nobody chose; the system's own where a library has merely asked for it
    chosen: Any = multiprocessing.get_start_method(allow_none=True)
    by_itself = sys.platform == "linux" and not torch.cuda.is_initialized()
    forks = by_itself if chosen is None else chosen == "fork"
    return "fork" if forks and differentiates_when_forked() else "spawn"


def process_pool(workers: int, begin: Callable[..., None], *given: Any) -> ProcessPoolExecutor:
    """A pool of processes that are started as :func:`start_method` says.

    Args:
        workers: how many.
        begin: runs first in every one of them; a function of a module, as whatever the pool is given.
        given: its arguments.
    """
    context = multiprocessing.get_context(start_method())
    return ProcessPoolExecutor(workers, context, initializer=begin, initargs=given)


@functools.cache
def differentiates_when_forked() -> bool:
    """Whether a process that was forked from one that has differentiated may differentiate as well.

    Where autograd knows of a device besides the processor it keeps a thread for it, and refuses to work in
    processes that were forked after that ("autograd's threading in combination with fork"). Seen in a build
    for Vulkan, Debian's; expected on a machine with a GPU. Nothing in torch says so beforehand, hence it is
    tried, in a process that is forked for it.
    """
    return _in_a_fork(lambda: _differentiates() and _in_a_fork(_differentiates))


def _differentiates() -> bool:
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
