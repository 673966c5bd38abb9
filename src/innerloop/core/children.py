"""Starting another Python: it imports what this one would, never what lies in the current folder."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

_VARIABLE = "PYTHONSAFEPATH"
_PARENT = "INNERLOOP_PARENT"


def python_command(*arguments: str) -> list[str]:
    """The command that starts this interpreter again.

    Without ``-P``, ``python -m`` and ``python -c`` look for modules in the current folder first: a file
    called ``torch.py`` in a folder of somebody else's data would be run.

    >>> python_command("-m", "innerloop")[1:]
    ['-P', '-m', 'innerloop']
    """
    return [sys.executable, "-P", *arguments]


def ends_with_parent() -> dict[str, str]:
    """Environment of a child that shall not outlive this process, however that ends (:func:`watch_parent`).

    >>> list(ends_with_parent())
    ['INNERLOOP_PARENT']
    """
    return {_PARENT: str(os.getpid())}


def watch_parent(every: float = 1.0) -> None:
    """In a child: ends as after SIGTERM, with a checkpoint, once the process that started it is gone.

    A process that is killed cannot end its children. Does nothing in processes that nobody started so, and on
    Windows, where a parent's number stays.
    """
    parent = os.environ.pop(_PARENT, "")  # not for children of this one
    if parent.isdecimal() and os.name == "posix":
        threading.Thread(target=_end_with, args=(int(parent), every), daemon=True).start()


def end_with_parent(parent: int, every: float = 1.0) -> None:
    """In a worker of a pool: ends at once when the process that started it is gone.

    A worker that waits for its next job would wait for ever, and holds what it was forked with: the lock of a
    run, for one. What it was at work on is lost; a job keeps what it finishes by itself.
    """
    if os.name == "posix":
        threading.Thread(target=_exit_with, args=(parent, every), daemon=True).start()


def _exit_with(parent: int, every: float) -> None:
    while os.getppid() == parent:
        time.sleep(every)
    os._exit(1)


def _end_with(parent: int, every: float) -> None:
    while os.getppid() == parent:
        time.sleep(every)
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def safe_path() -> Iterator[None]:
    """The same for processes that a library starts for us, such as those of a pool, while the context lasts.

    >>> with safe_path():
    ...     os.environ["PYTHONSAFEPATH"]
    '1'
    """
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
