"""Folders in which conversions work, and how a new folder takes the place of an old one."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from innerloop.core.errors import UserError
from innerloop.core.files import sync_folder, try_lock

_ASIDE: Final = ".replaced-"
_HERE: Final = -100 if sys.platform == "linux" else -2  # AT_FDCWD: paths mean what they mean to everybody
_SWAP: Final = 2  # RENAME_EXCHANGE of Linux; RENAME_SWAP of macOS has the same number


def take_place(new: Path, folder: Path) -> None:
    """``new`` becomes ``folder``; what was there is gone afterwards, and not before."""
    with _alone(folder.parent):
        _settle(folder)
        try:
            new.rename(folder)
        except OSError:
            if not folder.exists():
                raise
            if exchanged(new, folder):
                sync_folder(folder.parent)
                shutil.rmtree(new, ignore_errors=True)
            else:
                _in_two_steps(new, folder)
    sync_folder(folder.parent)


def put_back(folder: Path) -> None:
    """Restores a folder that a killed :func:`take_place` had set aside; does nothing where there is none."""
    if folder.exists() or not _aside(folder).exists():
        return
    with contextlib.suppress(OSError), _alone(folder.parent):  # perhaps this user may only read
        _settle(folder)


def put_all_back(parent: Path) -> None:
    """:func:`put_back` for every folder in ``parent``; set-aside copies that were replaced are removed."""
    for aside in parent.glob(f"{_ASIDE}*"):
        with contextlib.suppress(OSError), _alone(parent):
            _settle(parent / aside.name.removeprefix(_ASIDE))


def exchanged(one: Path, two: Path) -> bool:
    """Swaps the names of two folders in one step; False where system or disk cannot."""
    library = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
    swap = getattr(library, "renameat2" if sys.platform == "linux" else "renameatx_np", None)
    if swap is None:
        return False
    swap.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return bool(swap(_HERE, os.fsencode(one), _HERE, os.fsencode(two), _SWAP) == 0)


def _in_two_steps(new: Path, folder: Path) -> None:
    aside = _aside(folder)
    folder.rename(aside)
    try:
        new.rename(folder)
    except OSError:
        aside.rename(folder)
        raise
    sync_folder(folder.parent)
    _remove(aside)


def _settle(folder: Path) -> None:
    """Ends what a killed process began: its old copy comes back, or goes because the new one is there."""
    aside = _aside(folder)
    if not aside.exists():
        return
    if folder.exists():
        _remove(aside)
    else:
        aside.rename(folder)
        sync_folder(folder.parent)


def _remove(aside: Path) -> None:
    """Under another name first, so that half a copy is never taken for a whole one."""
    doomed = aside.with_name(f".partial-{aside.name}-gone-0")
    shutil.rmtree(doomed, ignore_errors=True)
    aside.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _aside(folder: Path) -> Path:
    return folder.with_name(f"{_ASIDE}{folder.name}")


@contextlib.contextmanager
def _alone(parent: Path) -> Iterator[None]:
    """One process at a time; the system lets go of the lock of a process that is killed."""
    try:
        import fcntl

        handle = os.open(parent, os.O_RDONLY)
    except (ImportError, OSError):  # Windows cannot lock folders
        yield
        return
    try:
        with contextlib.suppress(OSError):  # some network disks have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


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
