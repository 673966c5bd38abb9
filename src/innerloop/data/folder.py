"""A folder of one's own pictures: one folder per class, perhaps inside folders of groups or splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median_low
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innerloop.core.errors import Problems, UserError
from innerloop.data.folder_look import Head, OnBad, look_at_heads, shared, shared_pictures, unreadable
from innerloop.data.folder_tree import FolderContents, by_class, class_names, groups_of, scan
from innerloop.data.layouts.layout import Layout, Progress, cores
from innerloop.data.pictures import (
    GREY_MODES,
    BadPictureError,
    Colour,
    Fit,
    fit_picture,
    in_threads,
    open_picture,
)
from innerloop.data.splits import Splits, divide

SIZE = 84  # where pictures differ in size and none is asked for
LARGEST = 128  # pictures that all have one size keep it, up to this
_SHOWN = 5


class FolderOptions(NamedTuple):
    """How to read a folder."""

    size: int | None = None
    colour: Literal["auto", "grey", "rgb"] = "auto"
    fit: Fit = "crop"
    on_bad: OnBad = "refuse"
    min_images: int = 2
    leave_out: int = 0


class FolderClasses(NamedTuple):
    """The classes of a folder, before any picture is converted."""

    names: list[str]
    members: list[list[str]]
    heads: list[Head]
    splits: Splits | None

    @property
    def grey(self) -> bool:
        """Whether no picture has colours."""
        return all(mode in GREY_MODES for _, mode in self.heads)

    @property
    def side(self) -> int | None:
        """The side of all pictures, if they are squares of one size."""
        sizes = {size for size, _ in self.heads}
        width, height = next(iter(sizes))
        return width if len(sizes) == 1 and width == height else None

    @property
    def shorter(self) -> int:
        """The shorter side of a picture in the middle, by size."""
        return median_low(min(size) for size, _ in self.heads)


def classes_in(root: Path, scanned: FolderContents, options: FolderOptions) -> FolderClasses:
    """Looks at every picture's head, and sorts the pictures into classes."""
    problems, paths = Problems(), [item.path for item in scanned.files]
    heads, bad = look_at_heads(root, paths, options.on_bad)
    readable = list(heads)
    twice = [
        [readable[place] for place in places]
        for places in shared_pictures((root / path, path.rpartition("/")[0]) for path in readable)
    ]
    good = set(readable)
    if options.on_bad == "skip":
        good -= {path for same in twice for path in same}
    else:
        for error in [*([unreadable(bad)] if bad else []), *([shared(twice)] if twice else [])]:
            with problems.collect():
                raise error
    with problems.collect():
        names, members, splits = _sorted_by_class(root, scanned, good, options)
    problems.refuse()
    return FolderClasses(names, members, [heads[path] for own in members for path in own], splits)


def _sorted_by_class(
    root: Path, scanned: FolderContents, good: set[str], options: FolderOptions
) -> tuple[list[str], list[list[str]], Splits | None]:
    """Names of the classes, their good pictures, and the splits that folders say."""
    labelled = by_class(root, [item.path for item in scanned.files])
    all_of_them = {label: [path for path in paths if path in good] for label, paths in labelled.items()}
    all_of_them |= {label: [] for label in scanned.empty if not _is_within(label, labelled)}
    kept = {label: paths for label, paths in all_of_them.items() if len(paths) >= options.leave_out}
    if not kept:
        raise UserError(
            f"no class of {root} has {options.leave_out} pictures: lower {{leave_out}}.", names=("leave_out",)
        )
    problems = Problems()
    with problems.collect():
        _check_sizes(kept, options.min_images)
    with problems.collect():
        names, splits = class_names([label for label in kept if label in labelled], root)
    problems.refuse()
    return names, [paths for label, paths in kept.items() if label in labelled], splits


def _is_within(label: str, others: dict[str, list[str]]) -> bool:
    """Whether a folder lies in one that holds pictures itself, and so is no class."""
    return any(label.startswith(f"{other}/") for other in others)


def check_folder(path: Path) -> Path:
    """The folder itself, if it is one."""
    if not path.is_dir():
        raise UserError(f"{path} is not a folder: name one that holds a folder of examples per class.")
    return path


def examples_in(root: Path, options: FolderOptions) -> dict[str, list[Path]]:
    """The picture files of every class of a folder, by its name."""
    classes = classes_in(check_folder(root), scan(root), options)
    return {
        name: [root / path for path in paths]
        for name, paths in zip(classes.names, classes.members, strict=True)
    }


def folder_layout(root: Path, scanned: FolderContents, options: FolderOptions) -> Layout:
    """Look at every picture's head, and lay the classes out."""
    classes = classes_in(root, scanned, options)
    rows = [path for paths in classes.members for path in paths]
    size = options.size or (classes.side if classes.side and classes.side <= LARGEST else SIZE)
    own: Colour = "grey" if classes.grey else "rgb"
    colour = own if options.colour == "auto" else options.colour
    groups, group_names = groups_of(classes.names)
    return Layout(
        tuple(classes.names),
        tuple(len(paths) for paths in classes.members),
        rows,
        (size, size, 1 if colour == "grey" else 3),
        partial(_fill, root, rows, size, colour, options.fit),
        groups,
        group_names,
        classes.splits or divide(classes.names),
    )


def _check_sizes(members: Mapping[str, Sequence[str]], least: int) -> None:
    small = [f"'{label}' ({len(paths)})" for label, paths in members.items() if len(paths) < least]
    if small:
        more = f" and {len(small) - _SHOWN} more" if len(small) > _SHOWN else ""
        shown = ", ".join(small[:_SHOWN]) + more
        why = " (one to learn from, one to be judged by)" if least == 2 else ""
        raise UserError(
            f"too few pictures in {shown}: every class needs at least {least}{why}: add pictures, remove the "
            f"folder, or leave such classes out with {{leave_out}}={least}.",
            names=("leave_out",),
        )


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
