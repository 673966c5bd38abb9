"""A store (``images.npy``, ``index.json``, ``files.json``), built beside its place and moved there whole."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from innerloop._version import __version__
from innerloop.core.errors import UserError
from innerloop.core.files import plain, read_json, sync_file, sync_folder, try_lock, write_json_atomic
from innerloop.data.hashing import content_hash
from innerloop.data.layouts.layout import Layout
from innerloop.data.pictures import Progress, silent
from innerloop.data.source import ImageSource, map_array

IMAGES: Final = "images.npy"
INDEX: Final = "index.json"
FILES: Final = "files.json"
FORMAT: Final = 1
_SPARE: Final = 64 << 20  # bytes to leave free on the disk

Index = dict[str, Any]
"""What ``index.json`` holds, or a part of it."""
Verify = Callable[[str, str | None], Index]  # content hash, decoded hash -> what to record


def build_store(
    folder: Path,
    layout: Layout,
    facts: Index,
    verify: Verify | None = None,
    progress: Progress = silent,
    replace: bool = False,
) -> Index:
    """Convert into ``folder``; returns the index that was written."""
    with workspace(folder) as work:
        images = _new_array(work / IMAGES, (sum(layout.counts), *layout.shape))
        decoded = layout.fill(images, progress)
        images.flush()
        content = content_hash(images)
        del images  # a mapped file cannot be moved on Windows
        extra = verify(content, decoded) if verify else {}
        index = {
            "format": FORMAT,
            **facts,
            "images": sum(layout.counts),
            "shape": layout.shape,
            "content_sha256": content,
            "decoded_sha256": decoded,
            **extra,
            "made": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "innerloop": __version__,
            "group_names": layout.group_names,
            "groups": layout.groups,
            "splits": layout.splits,
            "counts": layout.counts,
            "class_names": layout.class_names,
        }
        (work / FILES).write_text(json.dumps(list(layout.files)), encoding="utf-8")
        write_json_atomic(work / INDEX, index)
        sync_file(work / FILES)
        sync_file(work / IMAGES)
        _move(work, folder, replace)
    made: Index = plain(index)
    return made


def read_index(folder: Path) -> Index | None:
    """The index of a store, or None where there is none."""
    put_back(folder)
    if not (folder / INDEX).exists():
        return None
    try:
        index: Index = read_json(folder / INDEX)
        fits = index["format"] == FORMAT and len(index["counts"]) == len(index["class_names"])
    except (ValueError, KeyError, TypeError):
        fits = False
    if not fits:
        raise UserError(f"{folder / INDEX} cannot be used by this version: delete {folder} and get it again.")
    return index


def open_store(folder: Path, name: str, splits: dict[str, NDArray[np.int64]] | None = None) -> ImageSource:
    """Map a store."""
    index = read_index(folder)
    if index is None:
        raise UserError(f"there is no store at {folder}.")
    try:
        images = map_array(folder / IMAGES)
    except (OSError, ValueError):
        raise UserError(f"{folder / IMAGES} is damaged: delete {folder} and get it again.") from None
    if images.shape != (index["images"], *index["shape"]) or images.dtype != np.uint8:
        raise UserError(f"{folder / IMAGES} does not fit its index: delete {folder} and get it again.")
    if splits is None:
        splits = {part: np.array(rows, dtype=np.int64) for part, rows in (index["splits"] or {}).items()}
    return ImageSource(
        name=name,
        images=images,
        starts=np.concatenate([[0], np.cumsum(index["counts"], dtype=np.int64)]),
        class_names=tuple(index["class_names"]),
        splits=splits,
        groups=None if index["groups"] is None else np.array(index["groups"], dtype=np.int64),
        group_names=tuple(index["group_names"]),
        files=partial(_file_name, str(folder / FILES)),
        content_sha256=index["content_sha256"],
    )


def _file_name(path: str, row: int) -> str:
    return _file_names(path)[row]  # read when the first is asked for


@lru_cache(maxsize=4)
def _file_names(path: str) -> list[str]:
    names: list[str] = read_json(Path(path))
    return names


def _new_array(path: Path, shape: tuple[int, ...]) -> np.memmap[Any, np.dtype[np.uint8]]:
    need, free = int(np.prod(shape, dtype=np.int64)), shutil.disk_usage(path.parent).free
    if need + _SPARE > free:  # writing to a mapped file on a full disk kills the process without a word
        raise UserError(
            f"the converted pictures take {need / 1e9:.1f} GB, and {path.parent.parent} has {free / 1e9:.1f} "
            "GB free: set INNERLOOP_DATA to a larger disk."
        )
    images = open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    if hasattr(os, "posix_fallocate"):  # others may fill the disk meanwhile: what is allocated now is ours
        with path.open("rb+") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return images


def _move(work: Path, folder: Path, replace: bool) -> None:
    if replace:
        take_place(work, folder)
        return
    try:
        work.rename(folder)
    except OSError:
        if read_index(folder) is None:  # somebody else was quicker is fine; anything else is not
            raise
    sync_folder(folder.parent)


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
    """Locks a folder while the block lasts; gives whether nobody else had locked it."""
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
