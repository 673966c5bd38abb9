"""What lies in a folder of one's own pictures, by name only: nothing is opened yet."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.core.errors import UserError
from innerloop.core.faults import not_utf8
from innerloop.data.hashing import text_hash
from innerloop.data.pictures import is_picture, is_taken_for_picture


class Found(NamedTuple):
    """A picture file: path inside the folder, bytes, time of change."""

    path: str
    size: int
    changed: int


class Scanned(NamedTuple):
    """What a folder holds."""

    files: list[Found]
    empty: list[str]


def scan(root: Path) -> Scanned:
    """Every picture file below ``root``; hidden folders and files are left alone."""
    pictures: list[Found] = []
    empty: list[str] = []
    seen: set[tuple[int, int]] = set()
    for folder, inner, names in os.walk(root, followlinks=True, onerror=_unlistable):
        here = os.stat(folder)
        if (here.st_dev, here.st_ino) in seen:  # a link that leads back up
            inner.clear()
            continue
        seen.add((here.st_dev, here.st_ino))
        inner[:] = [name for name in inner if not name.startswith((".", "__MACOSX"))]
        for name in names:
            if is_picture(name) or is_taken_for_picture(name):
                pictures.append(_found(root, Path(folder, name)))
        if not inner and all(name.startswith(".") for name in names) and Path(folder) != root:
            empty.append(_name(root, Path(folder)))
    if not pictures:
        raise UserError(f"{root} holds no pictures: it needs one folder per class with pictures in it.")
    return Scanned(sorted(pictures), sorted(empty))


def holds_pictures(root: Path) -> bool:
    """Whether there is a picture anywhere below a folder; looks no farther than the first one."""
    for _, inner, names in os.walk(root):
        inner[:] = [name for name in inner if not name.startswith((".", "__MACOSX"))]
        if any(is_picture(name) or is_taken_for_picture(name) for name in names):
            return True
    return False


def fingerprint(root: Path, scanned: Scanned, *more: Any) -> str:
    """Changes when a picture is added, removed or written, or an option is another."""
    lines = [f"{item.path}\t{item.size}\t{item.changed}" for item in scanned.files]
    return text_hash("folder", str(root.resolve()), repr(more), *lines, *scanned.empty)


def _found(root: Path, path: Path) -> Found:
    name = _name(root, path)
    try:
        state = path.stat()
    except OSError:  # a link to nowhere, or to itself: looking at it says so, and it may be left out
        return Found(name, 0, 0)
    return Found(name, state.st_size, state.st_mtime_ns)


def _name(root: Path, path: Path) -> str:
    name = path.relative_to(root).as_posix()
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UserError(f"{root}: {not_utf8(name)}.") from None
    return name


def _unlistable(error: OSError) -> None:
    """Reports a folder that cannot be listed: classes would be missing without a word."""
    raise UserError(
        f"the folder {error.filename} cannot be listed ({error.strerror}): make it readable, or move it away."
    ) from None
