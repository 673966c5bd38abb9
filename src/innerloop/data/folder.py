"""A folder of one's own pictures: one folder per class, perhaps inside folders of groups or splits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from innerloop.core.errors import UserError
from innerloop.data.folder_names import by_class, class_names, groups_of
from innerloop.data.hashing import text_hash
from innerloop.data.layouts.layout import Layout, Progress, cores
from innerloop.data.pictures import (
    ENORMOUS,
    GREY_MODES,
    BadPictureError,
    Colour,
    Fit,
    check_is_file,
    fit_picture,
    in_threads,
    is_picture,
    open_picture,
)
from innerloop.data.splits import divide

SIZE = 84  # where pictures differ in size and none is asked for
LARGEST = 128  # pictures that all have one size keep it, up to this
_SHOWN = 5

OnBad = Literal["refuse", "skip"]
Head = tuple[tuple[int, int], str]  # (width, height), mode


class FolderOptions(NamedTuple):
    """How to read a folder.

    Attributes:
        size: side in pixels; None keeps the pictures' own where all are alike, else 84.
        colour: "grey", "rgb", or "auto": grey where every picture is.
        fit: how to make them square.
        on_bad: "refuse" names files that cannot be read and stops; "skip" leaves them out.
        min_images: the fewest pictures a class may have.
    """

    size: int | None = None
    colour: Literal["auto", "grey", "rgb"] = "auto"
    fit: Fit = "crop"
    on_bad: OnBad = "refuse"
    min_images: int = 2


class Found(NamedTuple):
    """A picture file: path inside the folder, bytes, time of change."""

    path: str
    size: int
    changed: int


def scan(root: Path) -> list[Found]:
    """Every picture file below ``root``, sorted; hidden folders and files are left alone.

    Raises:
        UserError: there are none.
    """
    found: list[Found] = []
    seen: set[tuple[int, int]] = set()
    for folder, inner, names in os.walk(root, followlinks=True, onerror=_unlistable):
        here = os.stat(folder)
        if (here.st_dev, here.st_ino) in seen:  # a link that leads back up
            inner.clear()
            continue
        seen.add((here.st_dev, here.st_ino))
        inner[:] = [name for name in inner if not name.startswith((".", "__MACOSX"))]
        for name in filter(is_picture, names):
            found.append(_found(root, Path(folder, name)))
    if not found:
        raise UserError(f"{root} holds no pictures: it needs one folder per class with pictures in it.")
    return sorted(found)


def _found(root: Path, path: Path) -> Found:
    name = path.relative_to(root).as_posix()
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UserError(
            f"the name {os.fsencode(name)!r} in {root} is not UTF-8: rename it, so that its class has a name."
        ) from None
    try:
        state = path.stat()
    except OSError:  # a link to nowhere, or to itself: looking at it says so, and it may be left out
        return Found(name, 0, 0)
    return Found(name, state.st_size, state.st_mtime_ns)


def _unlistable(error: OSError) -> None:
    """A folder that cannot be listed is told; classes would be missing without a word."""
    raise UserError(
        f"the folder {error.filename} cannot be listed ({error.strerror}): make it readable, or move it away."
    ) from None


def fingerprint(root: Path, found: Sequence[Found], *more: Any) -> str:
    """Changes when a picture is added, removed or written, or an option is another."""
    lines = [f"{item.path}\t{item.size}\t{item.changed}" for item in found]
    return text_hash("folder", str(root.resolve()), repr(more), *lines)


def folder_layout(root: Path, found: Sequence[Found], options: FolderOptions) -> Layout:
    """Look at every picture's head, and lay the classes out.

    Raises:
        UserError: the folder is not laid out by class, a class is too small, or a file cannot be read.
    """
    members = by_class(root, [item.path for item in found])
    heads = _heads(root, [path for paths in members.values() for path in paths], options)
    members = {label: [path for path in paths if path in heads] for label, paths in members.items()}
    names, folders = class_names(list(members), root)
    _check_sizes(names, [len(paths) for paths in members.values()], options.min_images)
    rows = [path for paths in members.values() for path in paths]
    size, colour = _common(list(heads.values()), options)
    groups, group_names = groups_of(names)
    return Layout(
        tuple(names),
        tuple(len(paths) for paths in members.values()),
        rows,
        (size, size, 1 if colour == "grey" else 3),
        partial(_fill, root, rows, size, colour, options.fit),
        groups,
        group_names,
        folders or divide(names),
    )


def _heads(root: Path, paths: Sequence[str], options: FolderOptions) -> dict[str, Head]:
    """Size and mode of every readable picture."""
    look = partial(_look, root, options.on_bad == "skip")
    heads: dict[str, Head] = {}
    bad: list[tuple[str, str]] = []
    for path, head in zip(paths, in_threads(look, paths, cores()), strict=True):
        if isinstance(head, str):
            bad.append((path, head))
        else:
            heads[path] = head
    if bad and options.on_bad == "refuse":
        raise unreadable(bad)
    return heads


def _look(root: Path, thoroughly: bool, path: str) -> Head | str:
    try:
        check_is_file(root / path)
        with Image.open(root / path) as picture:
            head = picture.size, picture.mode
        if thoroughly:  # only decoding shows that the rest is whole
            open_picture(root / path)
        return head
    except BadPictureError as error:
        return str(error)
    except Image.DecompressionBombError:
        return ENORMOUS
    except Exception as error:  # heads of damaged files fail in many ways
        return (
            "it is of no known format" if "identify" in str(error) else str(error)[:80] or "it cannot be read"
        )


def unreadable(bad: Sequence[tuple[str, str]]) -> UserError:
    """What is said of files that cannot be read, each with its reason."""
    shown = "; ".join(f"{path} ({reason})" for path, reason in bad[:_SHOWN])
    more = f" and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    files = "1 file" if len(bad) == 1 else f"{len(bad)} files"
    return UserError(
        f"{files} cannot be read as pictures: {shown}{more}: repair or remove them, or leave them out with "
        'on_bad="skip" (--skip-bad).'
    )


def _check_sizes(names: Sequence[str], counts: Sequence[int], least: int) -> None:
    small = [f"'{name}' ({count})" for name, count in zip(names, counts, strict=True) if count < least]
    if small:
        more = f" and {len(small) - _SHOWN} more" if len(small) > _SHOWN else ""
        shown = ", ".join(small[:_SHOWN]) + more
        raise UserError(
            f"too few pictures in {shown}: every class needs at least {least} (one to learn from, one to be "
            "judged by): add pictures or remove the folder."
        )


def _common(heads: Sequence[Head], options: FolderOptions) -> tuple[int, Colour]:
    sizes = {size for size, _ in heads}
    width, height = next(iter(sizes))
    alike = len(sizes) == 1 and width == height <= LARGEST
    size = options.size or (width if alike else SIZE)
    if options.colour != "auto":
        return size, options.colour
    return size, "grey" if all(mode in GREY_MODES for _, mode in heads) else "rgb"


def _fill(
    root: Path,
    rows: Sequence[str],
    size: int,
    colour: Colour,
    fit: Fit,
    images: NDArray[np.uint8],
    progress: Progress,
) -> None:
    bad: list[tuple[str, str]] = []
    work = partial(_convert, root, size, colour, fit)
    for row, picture in enumerate(in_threads(work, rows, cores())):
        if isinstance(picture, str):
            bad.append((rows[row], picture))
        else:
            images[row] = picture
        progress("converting", row + 1, len(rows))
    if bad:
        raise unreadable(bad)


def _convert(root: Path, size: int, colour: Colour, fit: Fit, path: str) -> NDArray[np.uint8] | str:
    try:
        return fit_picture(open_picture(root / path), size, colour, fit)
    except BadPictureError as error:
        return str(error)
