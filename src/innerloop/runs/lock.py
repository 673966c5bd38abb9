"""One process at a time works on a run. The system lets go of the lock of a process that is killed."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from innerloop.core.errors import UserError
from innerloop.core.faults import in_words
from innerloop.runs.directory import refuse_links
from innerloop.runs.process import identity

LOCK = ".lock"
_SAID = 400  # bytes of the lock file that are read for a message


@contextlib.contextmanager
def sole_writer(run: Path) -> Iterator[bool]:
    """Holds the lock of a run while the block lasts; taken before anything in the run is read or written.

    Yields:
        Whether the run had a lock before: then whoever held it is gone, whatever its manifest says. A run of
        an earlier version had none.

    Raises:
        UserError: another process holds it, the run cannot be written, or a link leads out of it.
    """
    refuse_links(run)
    file = run / LOCK
    known = file.exists()
    try:
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise UserError(in_words(error) or f"{run} cannot be written ({error.strerror}).") from None
    try:
        if not try_lock(handle):
            raise UserError(f"{run} is being worked on by {_holder(handle)}: wait for it, or stop it first.")
        told = json.dumps({name: identity()[name] for name in ("pid", "host")}).encode()
        with contextlib.suppress(OSError):  # a full disk: the lock holds without words
            os.ftruncate(handle, 0)
            os.pwrite(handle, told, 0) if hasattr(os, "pwrite") else os.write(handle, told)
        yield known
    finally:
        os.close(handle)


def try_lock(handle: int) -> bool:
    """Takes the lock of an open file, if nobody has it; it is held until the file is closed.

    Disks without locks give it to everybody.
    """
    try:
        import fcntl
    except ImportError:
        return _locked_on_windows(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _locked_on_windows(handle: int) -> bool:
    if sys.platform == "win32":
        import msvcrt

        try:  # far behind what is written into the file, which others may then still read
            os.lseek(handle, 1 << 20, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(handle, 0, os.SEEK_SET)
    return True


def _holder(handle: int) -> str:
    try:
        about = json.loads(os.read(handle, _SAID))
        return f"process {int(about['pid'])} on {about['host']}"
    except (OSError, ValueError, TypeError, KeyError):
        return "another process"
