"""A folder of one's own pictures: one folder per class, perhaps inside folders of groups or splits."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median_low
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from innerloop.core.errors import Problems, UserError
from innerloop.core.paths import user_path
from innerloop.data.folder_tree import FolderContents, by_class, class_names, groups_of, scan
from innerloop.data.layouts.layout import Layout
from innerloop.data.pictures import (
    ENORMOUS,
    FORMATS,
    GREY_MODES,
    BadPictureError,
    Colour,
    Fit,
    Progress,
    check_is_file,
    fit_picture,
    in_threads,
    open_picture,
    read_bytes,
    too_large,
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
    heads, bad = read_heads(root, paths, options.on_bad)
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
    for row, picture in enumerate(in_threads(work, rows)):
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


OnBad = Literal["refuse", "skip"]
Head = tuple[tuple[int, int], str]
"""(width, height) and mode of a picture."""
Bad = list[tuple[str, str]]
"""Files that cannot be read, each with the reason."""


def read_heads(root: Path, paths: Sequence[str], on_bad: OnBad) -> tuple[dict[str, Head], Bad]:
    """Size and mode of every readable picture, and what cannot be read."""
    # heads show most of what is wrong; all is decoded if something is, so that everything is told at once
    heads, bad = _heads(root, paths, on_bad == "skip")
    if bad and on_bad == "refuse":
        heads, bad = _heads(root, paths, True)
    return heads, bad


def _heads(root: Path, paths: Sequence[str], thoroughly: bool) -> tuple[dict[str, Head], Bad]:
    heads: dict[str, Head] = {}
    bad: Bad = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # giants get a sentence of ours
        found = list(in_threads(partial(_head, root, thoroughly), paths))
    for path, head in zip(paths, found, strict=True):
        if isinstance(head, str):
            bad.append((path, head))
        else:
            heads[path] = head
    return heads, bad


def _head(root: Path, thoroughly: bool, path: str) -> Head | str:
    try:
        check_is_file(root / path)
        with Image.open(root / path, formats=FORMATS) as picture:
            head = picture.size, picture.mode
        if giant := too_large(head[0]):
            return giant
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
        '{on_bad="skip"}.',
        names=('on_bad="skip"',),
    )


def shared_pictures(files: Iterable[tuple[Path, Any]]) -> list[list[int]]:
    """Places of files that hold the same bytes and have different labels, together."""
    listed = list(files)
    by_size = _grouped({place: _length(path) for place, (path, _) in enumerate(listed)})
    alike = [places for size, places in by_size.items() if size and _labels(listed, places) > 1]
    digests = {place: _digest(listed[place][0]) for places in alike for place in places}
    by_content = _grouped({place: digest for place, digest in digests.items() if digest})
    return sorted(places for places in by_content.values() if _labels(listed, places) > 1)


def refuse_two_labels(pictures: Any, labels: Sequence[Any]) -> None:
    """Refuses picture files that are given with different labels; other pictures are left alone."""
    if not isinstance(pictures, (list, tuple)) or len(pictures) != len(labels):
        return
    if all(isinstance(picture, (str, Path)) for picture in pictures):
        files = [user_path(picture) for picture in pictures]
        if conflicts := shared_pictures(zip(files, labels, strict=True)):
            shown = _shown([[str(pictures[place]) for place in places] for places in conflicts])
            raise UserError(
                f"the same picture is given with different labels ({shown}), and only one can be right: "
                "leave out the wrong ones."
            )


def shared(conflicts: Sequence[Sequence[str]]) -> UserError:
    """What is said of pictures that several classes have."""
    what = "the same picture is" if len(conflicts) == 1 else f"{len(conflicts)} pictures are each"
    return UserError(
        f"{what} in several classes ({_shown(conflicts)}), and only one can be right: remove the wrong ones, "
        'or leave all of them out with {on_bad="skip"}.',
        names=('on_bad="skip"',),
    )


def _shown(conflicts: Sequence[Sequence[str]]) -> str:
    more = f"; and {len(conflicts) - _SHOWN} more" if len(conflicts) > _SHOWN else ""
    return "; ".join(" and ".join(names[:3]) for names in conflicts[:_SHOWN]) + more


def _grouped(values: Mapping[int, Any]) -> dict[Any, list[int]]:
    groups: dict[Any, list[int]] = {}
    for place, value in values.items():
        groups.setdefault(value, []).append(place)
    return groups


def _labels(files: Sequence[tuple[Path, Any]], places: Sequence[int]) -> int:
    return len({files[place][1] for place in places})


def _length(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _digest(path: Path) -> bytes | None:
    try:
        return hashlib.sha256(read_bytes(path)).digest()
    except BadPictureError:
        return None
