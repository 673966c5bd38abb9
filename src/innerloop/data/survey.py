"""What pictures there are to train on, before any is converted: what settings can be fitted to."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from innerloop.core.paths import user_path
from innerloop.data.catalogue import EMBEDDED, catalogue
from innerloop.data.folder import FolderClasses, FolderOptions, classes_in
from innerloop.data.folder_look import OnBad
from innerloop.data.folder_tree import fingerprint, groups_of, scan
from innerloop.data.opening import ALL, TEST, open_source, own_store
from innerloop.data.source import ImageSource
from innerloop.data.splits import Splits, divide, hold_out, read_split_file

LARGEST = 84
"""Larger pictures are made smaller unless somebody asks for them: time grows with their pixels."""
SMALLEST = 16
"""Four blocks that halve their pictures leave nothing of smaller ones."""


class Survey(NamedTuple):
    """Pictures by what they hold."""

    name: str
    counts: dict[str, int]
    splits: dict[str, list[str]]
    side: int
    grey: bool
    divided: bool


def survey(
    name: str,
    *,
    splits: str | None = None,
    split_file: str | None = None,
    on_bad: OnBad = "refuse",
    leave_out: int = 0,
) -> Survey:
    """Looks at the pictures that a recipe names."""
    path = user_path(name)
    known = name == EMBEDDED or name in catalogue() or own_store(name) is not None
    if known or not path.is_dir():
        seen = _of_source(open_source(name, splits=splits, split_file=split_file))
    else:
        options = FolderOptions(on_bad=on_bad, leave_out=leave_out)
        classes = _looked(path, options, fingerprint(path, scan(path)))
        seen = _of_folder(classes, _given(classes, splits, split_file))
    parts = seen.parts
    if not parts.get("validation") and len(parts.get("train", ())) > 1:
        parts = {**parts, **hold_out(parts["train"], seen.names, seen.groups)}
    named = {part: [seen.names[c] for c in numbers] for part, numbers in parts.items()}
    counts = dict(zip(seen.names, seen.counts, strict=True))
    return Survey(name, counts, named, seen.side, seen.grey, seen.divided)


@functools.lru_cache(maxsize=2)
def _looked(root: Path, options: FolderOptions, holds: str) -> FolderClasses:
    """The classes of a folder; a command asks several times. ``holds`` is another when the folder changes."""
    del holds
    return classes_in(root, scan(root), options)


class _Seen(NamedTuple):
    """As :class:`Survey`, with numbers of classes, and the name of the group of every class."""

    names: Sequence[str]
    counts: Sequence[int]
    parts: Mapping[str, Sequence[int]]
    groups: Sequence[str] | None
    side: int
    grey: bool
    divided: bool


def _of_source(source: ImageSource) -> _Seen:
    groups = None if source.groups is None else [source.group_names[group] for group in source.groups]
    parts = {part: numbers.tolist() for part, numbers in source.splits.items()}
    _, side, _, channels = source.images.shape
    return _Seen(source.class_names, source.counts.tolist(), parts, groups, side, channels == 1, False)


def _of_folder(classes: FolderClasses, given: Splits | None) -> _Seen:
    groups, names = groups_of(classes.names)
    return _Seen(
        classes.names,
        [len(paths) for paths in classes.members],
        given or divide(classes.names),
        None if groups is None else [names[group] for group in groups],
        _side(classes),
        classes.grey,
        given is None,
    )


def _side(classes: FolderClasses) -> int:
    """Of all pictures, else of one in the middle by size, within bounds."""
    return max(SMALLEST, min(LARGEST, classes.side or classes.shorter))


def _given(classes: FolderClasses, splits: str | None, split_file: str | None) -> Splits | None:
    """The splits that the user has asked for; None where we divide."""
    if split_file is not None:
        return read_split_file(user_path(split_file), classes.names)
    if splits in (ALL, TEST):
        return {str(splits): tuple(range(len(classes.names)))}
    return classes.splits
