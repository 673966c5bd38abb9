"""Locks of files. The system lets go of the lock of a process that is killed."""

from __future__ import annotations

import os
import sys


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
