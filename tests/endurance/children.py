"""The command in a process of its own, which is killed at a random moment.

Processes are forked from this one, which has imported everything: a process that starts afresh would spend
seconds on that before it does anything that a kill could hurt. A child still carries out the whole command,
``innerloop.cli.main.main([...])``, and ends by SIGKILL from the kernel: no clean-up of Python's or ours runs.
What it starts itself (the runs of a sweep, the workers of a search) it starts as it always does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

FILE_OPERATIONS = {
    *("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.truncate", "os.utime"),
    *("os.link", "tempfile.mkstemp", "tempfile.mkdtemp", "shutil.rmtree", "mmap.__new__", "subprocess.Popen"),
}
"""What Python announces to audit hooks of its work on files: kills fall between any two of these."""

READ_A_LEFTOVER = 99
"""Exit code of a child that opened, to read it, what a killed one had left unfinished."""

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: what a killed child leaves running becomes ours, to wait for


class Moment(NamedTuple):
    """When a child is killed.

    Attributes:
        seconds: after its start; None if a file operation decides.
        operation: at its so many-th file operation; None if the clock decides.
        group: whether all processes that it started are killed with it.
        number: of the signal.
    """

    seconds: float | None = None
    operation: int | None = None
    group: bool = False
    number: int = signal.SIGKILL


class Ended(NamedTuple):
    """How a child ended: its exit code, or minus the number of a signal; seconds; file operations; words."""

    code: int
    seconds: float
    operations: int
    output: str


def adopt_orphans() -> None:
    """Makes this process the parent of whatever its children leave behind (Linux)."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def wait_for_orphans() -> None:
    """Returns when no process is left that a child has started."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def carry_out(
    words: Sequence[str],
    output: Path,
    moment: Moment | None = None,
    leftovers: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Runs a command in a child, and kills it at the given moment if it is not done by then.

    Args:
        words: of the command line.
        output: a file for its standard output and standard error.
        moment: when it is killed; None lets it finish.
        leftovers: unfinished files and folders, which it may remove and must not read.
        environment: variables of its own.
    """
    started = time.monotonic()
    pid = start(words, output, moment, leftovers, environment)
    if moment is not None and moment.seconds is not None:
        _kill_later(pid, moment)
    return finish(pid, output, started)


def start(
    words: Sequence[str],
    output: Path,
    moment: Moment | None = None,
    leftovers: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> int:
    """The number of a child that carries out a command; the arguments are those of :func:`carry_out`."""
    output.write_bytes(b"")  # a child may be killed before it opens this
    pid = os.fork()
    if pid == 0:
        os.environ.update(environment or {})
        _be_the_child(words, output, moment, leftovers)
    with contextlib.suppress(OSError):  # whoever is first, it or we: a group of its own
        os.setpgid(pid, pid)
    return pid


def finish(pid: int, output: Path, started: float) -> Ended:
    """Waits for a child."""
    status = os.waitpid(pid, 0)[1]
    seconds, told = time.monotonic() - started, _counted(output)
    operations = int(told.read_text()) if told.exists() else 0
    told.unlink(missing_ok=True)
    return Ended(os.waitstatus_to_exitcode(status), seconds, operations, output.read_text(errors="replace"))


def _counted(output: Path) -> Path:
    """Where a child that finishes leaves the number of its file operations."""
    return output.with_suffix(".operations")


def _kill_later(pid: int, moment: Moment) -> None:
    """Sends the signal after the time, unless the child ends before."""
    assert moment.seconds is not None
    handle = os.pidfd_open(pid)
    try:
        if not select.select([handle], [], [], moment.seconds)[0]:
            (os.killpg if moment.group else os.kill)(pid, moment.number)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def _be_the_child(
    words: Sequence[str], output: Path, moment: Moment | None, leftovers: Sequence[str]
) -> None:
    """Never returns: whatever happens, the child must not go on as its parent."""
    code = 1
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(file, stream)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        torch.set_num_threads(1)
        from innerloop.cli.main import main

        count = watch_files(moment, [os.path.abspath(left) for left in leftovers])
        code = main(list(words))
        sys.stdout.flush()
        _counted(output).write_text(str(count[0]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def watch_files(moment: Moment | None, leftovers: Sequence[str]) -> list[int]:
    """Counts the file operations of this process from now on; dies at one of them, if that is the moment."""
    count, owner = [0], os.getpid()
    last = None if moment is None else moment.operation

    def seen(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in FILE_OPERATIONS or os.getpid() != owner or _imports(event, arguments):
            return
        count[0] += 1
        if count[0] == last:
            assert moment is not None
            (os.killpg if moment.group else os.kill)(owner, moment.number)
        if event == "open" and _reads(arguments, leftovers):
            os.write(2, f"read what was left unfinished: {arguments[0]!r}\n".encode())
            os._exit(READ_A_LEFTOVER)

    sys.addaudithook(seen)
    return count


def _imports(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether a module is loaded, which nothing depends on."""
    return event == "open" and str(arguments[0]).endswith((".py", ".pyc", ".so"))


def _reads(arguments: tuple[Any, ...], leftovers: Sequence[str]) -> bool:
    """Whether a file is opened for its content; ``os.open`` (mode None) is how folders are removed."""
    path, mode = arguments[0], arguments[1]
    if not leftovers or mode is None or "r" not in mode or not isinstance(path, (str, bytes)):
        return False
    name = os.path.abspath(os.fsdecode(path))
    return any(name == left or name.startswith(left + os.sep) for left in leftovers)
