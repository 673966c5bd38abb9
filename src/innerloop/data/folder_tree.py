"""What lies in a folder of one's own pictures, by name only, and what its folders mean."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from innerloop.core.errors import Problems, UserError, not_utf8
from innerloop.data.hashing import text_hash
from innerloop.data.pictures import is_picture, is_taken_for_picture
from innerloop.data.splits import WORDS, Splits


class PictureFile(NamedTuple):
    """A picture file: path inside the folder, bytes, time of change."""

    path: str
    size: int
    changed: int


class FolderContents(NamedTuple):
    """What a folder holds."""

    files: list[PictureFile]
    empty: list[str]


def scan(root: Path) -> FolderContents:
    """Every picture file below ``root``; hidden folders and files are left alone."""
    pictures: list[PictureFile] = []
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
    return FolderContents(sorted(pictures), sorted(empty))


def holds_pictures(root: Path) -> bool:
    """Whether there is a picture anywhere below a folder; looks no farther than the first one."""
    for _, inner, names in os.walk(root):
        inner[:] = [name for name in inner if not name.startswith((".", "__MACOSX"))]
        if any(is_picture(name) or is_taken_for_picture(name) for name in names):
            return True
    return False


def fingerprint(root: Path, scanned: FolderContents, *more: Any) -> str:
    """Changes when a picture is added, removed or written, or an option is another."""
    lines = [f"{item.path}\t{item.size}\t{item.changed}" for item in scanned.files]
    return text_hash("folder", str(root.resolve()), repr(more), *lines, *scanned.empty)


def _found(root: Path, path: Path) -> PictureFile:
    name = _name(root, path)
    try:
        state = path.stat()
    except OSError:  # a link to nowhere, or to itself: looking at it says so, and it may be left out
        return PictureFile(name, 0, 0)
    return PictureFile(name, state.st_size, state.st_mtime_ns)


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


def by_class(root: Path, paths: Sequence[str]) -> dict[str, list[str]]:
    """Paths by the folder they are in."""
    members: dict[str, list[str]] = {}
    for path in paths:
        members.setdefault(path.rpartition("/")[0], []).append(path)
    problems = Problems()
    if loose := members.get(""):
        lie = "lies" if len(loose) == 1 else f"and {len(loose) - 1} more lie"
        problems.add(
            f"{loose[0]} {lie} directly in {root}: put the pictures of each class into a folder of its own."
        )
    mixed = {
        above: label
        for label in members
        for above in map(str, PurePosixPath(label).parents)
        if above != "." and above in members
    }
    for above, label in mixed.items():
        problems.add(
            f"'{above}' in {root} holds pictures and also '{label}', a folder of pictures: separate them."
        )
    problems.refuse()
    return members


def class_names(labels: Sequence[str], root: Path) -> tuple[list[str], Splits | None]:
    """Class names, and the splits where the outermost folders are called train, val and test."""
    names = list(labels)
    if len(names) > 1 and all("/" in name for name in names):
        shorter, tails = zip(*(name.rsplit("/", 1) for name in names), strict=True)
        if len(set(tails)) == 1 and len(set(shorter)) == len(names):  # …/<class>/images/x.jpg
            names = list(shorter)
    first = [name.partition("/")[0].lower() for name in names]
    if not all("/" in name for name in names) or not set(first) <= set(WORDS):
        _check_depth(names, root)
        return names, None
    inner = [name.partition("/")[2] for name in names]
    if len(set(inner)) < len(inner):
        twice = next(name for name in inner if inner.count(name) > 1)
        raise UserError(
            f"the class '{twice}' is in several of {root}'s split folders; splits of few-shot learning hold "
            "different classes: put each class into one folder, or all into one with a split file."
        )
    _check_depth(inner, root)
    parts: dict[str, list[int]] = {}
    for number, word in enumerate(first):
        parts.setdefault(WORDS[word], []).append(number)
    return inner, {part: tuple(numbers) for part, numbers in parts.items()} if len(parts) > 1 else None


def _check_depth(names: Sequence[str], root: Path) -> None:
    """Classes lie in the folder itself, or all of them in folders of groups."""
    deep, flat = max(names, key=_depth), min(names, key=_depth)
    if _depth(deep) != _depth(flat):
        raise UserError(
            f"class folders of {root} lie at different depths ('{flat}' and '{deep}'): bring them to the "
            "same, one folder per class."
        )
    if _depth(deep) > 1:
        above = deep.rpartition("/")[0]
        raise UserError(
            f"the pictures of {root} lie in folders of folders of folders ('{deep}'): name the folder that "
            f"holds the class folders (such as {root / above}), or move the class folders up."
        )


def _depth(name: str) -> int:
    return name.count("/")


def groups_of(names: Sequence[str]) -> tuple[tuple[int, ...] | None, tuple[str, ...]]:
    """The folder above each class, where every class has one."""
    if not all("/" in name for name in names):
        return None, ()
    of = [name.rpartition("/")[0] for name in names]
    group_names = tuple(dict.fromkeys(of))
    return tuple(group_names.index(group) for group in of), group_names
