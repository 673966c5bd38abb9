"""Folders in which conversions work beside their place, and what killed ones left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from innerloop.core.errors import UserError
from innerloop.core.lock import try_lock
from innerloop.data.exchange import put_all_back

_PARTIAL: Final = ".partial-"
_DAY: Final = 86400.0


@contextlib.contextmanager
def workspace(folder: Path) -> Iterator[Path]:
    """A folder to work in beside ``folder``; gone afterwards, whatever happens."""
    parent = folder.parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        sweep(parent)
        mark = f"{_PARTIAL}{socket.gethostname()}-{os.getpid()}-"
        work = Path(tempfile.mkdtemp(prefix=mark, dir=parent))
        work.chmod(0o755)  # mkdtemp makes it private; the data folder decides who may read
    except OSError as error:
        raise UserError(
            f"{parent} cannot be written ({error.strerror}): set INNERLOOP_DATA to a folder of yours."
        ) from None
    with _in_use(work):
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def _in_use(work: Path) -> Iterator[bool]:
    """Locks a folder while the block lasts; gives whether nobody else had locked it.

    Whatever the clock says, and however long it takes, a folder in use is not cleared away.
    """
    try:
        handle = os.open(work, os.O_RDONLY)
    except OSError:  # Windows cannot open folders
        yield True
        return
    try:
        yield try_lock(handle)
    finally:
        os.close(handle)


def sweep(parent: Path) -> None:
    """Remove what killed conversions left behind, and put back what they had set aside."""
    put_all_back(parent)
    for left in parent.glob(f"{_PARTIAL}*"):
        if _abandoned(left):
            shutil.rmtree(left, ignore_errors=True)


def _abandoned(left: Path) -> bool:
    with _in_use(left) as free:
        if not free:
            return False
    old = False
    host, _, rest = left.name.removeprefix(_PARTIAL).rpartition("-")[0].rpartition("-")
    try:
        old = time.time() - left.stat().st_mtime > _DAY
        if os.name == "posix" and host == socket.gethostname():
            os.kill(int(rest), 0)  # asks whether the process lives; on Windows this would end it
    except (ProcessLookupError, FileNotFoundError):
        return True
    except (ValueError, OSError):
        pass
    return old
