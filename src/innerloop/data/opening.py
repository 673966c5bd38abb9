"""A data set by its name or path: opened, or surveyed before any picture is converted."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.paths import user_path
from innerloop.data.arrays import npz_layout
from innerloop.data.catalogue import EMBEDDED, catalogue, published_splits
from innerloop.data.folder import FolderClasses, FolderOptions, OnBad, classes_in, folder_layout
from innerloop.data.folder_tree import fingerprint, groups_of, scan
from innerloop.data.get import how_to_get
from innerloop.data.hashing import text_hash
from innerloop.data.layouts.layout import Layout
from innerloop.data.paths import cache_folder, data_folder, is_name
from innerloop.data.pictures import Colour, Fit, Progress, fit_picture, in_threads, silent
from innerloop.data.source import ImageSource
from innerloop.data.splits import Splits, divide, hold_out, read_split_file
from innerloop.data.store import build_store, open_store, read_index

ALL, TEST = "all", "test"


def open_source(
    name_or_path: str | Path,
    *,
    size: int | None = None,
    colour: Literal["auto", "grey", "rgb"] = "auto",
    fit: Fit = "crop",
    splits: str | None = None,
    split_file: str | Path | None = None,
    on_bad: OnBad = "refuse",
    min_images: int = 2,
    leave_out: int = 0,
    progress: Progress = silent,
) -> ImageSource:
    """Labelled pictures, mapped from disk.

    Args:
        name_or_path: a dataset of the catalogue ("omniglot", "cifar-fs", …), "glyphs", a dataset of your own
            that ``innerloop data get`` stored, a folder with one folder per class, or an .npz file.
        size: side in pixels; by default the dataset's own.
        colour: "grey", "rgb", or as the pictures are.
        fit: how pictures of other proportions become square: "crop", "squash" or "pad".
        splits: which published split (Omniglot has "vinyals" and "alphabet"); "all" takes all classes as one,
            "test" all of them to test on.
        split_file: JSON or csv that lists the classes of each split.
        on_bad: what to do with files that cannot be read, and with pictures that several classes have:
            "refuse" names them, "skip" leaves them out.
        min_images: the fewest pictures a class of a folder may have.
        leave_out: classes of a folder with fewer pictures than this are left out.
        progress: told how far a first conversion is.

    Raises:
        UserError: there is no such dataset, or it cannot be used; the message says what to do.
    """
    name = str(name_or_path)
    if name == EMBEDDED:
        from innerloop.data.glyphs import glyphs

        source = glyphs()
    elif name in catalogue():
        source = _open_known(name, splits)
    elif own_store(name) is not None:
        source = open_store(data_folder() / name, name)
    else:
        options = FolderOptions(size, colour, fit, on_bad, min_images, leave_out)
        source = open_path(user_path(name), options, progress)
    if split_file is not None:
        listed = read_split_file(user_path(split_file), source.class_names)
        source = source._replace(splits=_numbers(listed))
    elif splits in (ALL, TEST):
        source = source._replace(splits={splits: np.arange(source.n_classes)})
    elif splits is not None and name not in catalogue():
        raise UserError(f"{name} has no published split '{splits}': give a split_file, or splits=\"all\".")
    return resized(source, size, colour, fit, progress)


def own_store(name: str) -> Path | None:
    """Where a dataset of the user's own is stored by that name, or None."""
    folder = data_folder() / name
    return folder if is_name(name) and read_index(folder) is not None else None


def open_path(path: Path, options: FolderOptions, progress: Progress = silent) -> ImageSource:
    """A folder or .npz file; converted once, and again when it changes."""
    if path.is_dir():
        scanned = scan(path)
        key = fingerprint(path, scanned, options)
        return _cached(path.name, key, partial(folder_layout, path, scanned, options), progress)
    if path.is_file() and path.suffix.lower() == ".npz":
        state = path.stat()
        key = text_hash("npz", str(path.resolve()), str(state.st_size), str(state.st_mtime_ns))
        return _cached(path.stem, key, partial(npz_layout, path), progress)
    if path.is_file():
        raise UserError(
            f"{path} is neither a folder of class folders nor an .npz file; an archive of the catalogue is "
            f"adopted by `innerloop data get NAME --from {path}`."
        )
    known = [*catalogue(), EMBEDDED]
    raise UserError(
        f"'{path}' is neither a dataset{did_you_mean(str(path), known)} nor a folder or file: the catalogue "
        f"has {', '.join(known)}."
    )


def resized(
    source: ImageSource, size: int | None, colour: str, fit: Fit = "crop", progress: Progress = silent
) -> ImageSource:
    """The same pictures in another size or colour; converted once, then mapped."""
    height, width, channels = source.images.shape[1:]
    wanted: Colour = "grey" if (channels == 1 if colour == "auto" else colour == "grey") else "rgb"
    shape = (size or height, size or width, 1 if wanted == "grey" else 3)
    if shape == (height, width, channels):
        return source
    if size is not None and size < 1:
        raise UserError(f"size={size} is not a size for a picture: give at least 1.")
    key = text_hash("resized", source.content_sha256, repr(shape), fit, repr(source.counts.tolist()))
    layout = partial(_resized_layout, source, shape, fit)
    made = _cached(source.name, key, layout, progress)
    return source._replace(images=made.images, content_sha256=made.content_sha256)


def _resized_layout(source: ImageSource, shape: tuple[int, int, int], fit: Fit) -> Layout:
    return Layout(
        source.class_names,
        tuple(source.counts.tolist()),
        [source.files(row) for row in range(len(source.images))],
        shape,
        partial(_resize_all, source.images, shape, fit),
        None if source.groups is None else tuple(source.groups.tolist()),
        source.group_names,
    )


def _open_known(name: str, splits: str | None) -> ImageSource:
    entry = catalogue()[name]
    folder = data_folder() / entry.store
    index = read_index(folder)
    if index is None:
        raise UserError(how_to_get(entry))
    if index["splits"]:  # the archive itself said which class is in which split
        return open_store(folder, name)
    return open_store(folder, name, published_splits(entry, None if splits in (ALL, TEST) else splits))


def _cached(name: str, key: str, layout: Callable[[], Layout], progress: Progress) -> ImageSource:
    folder = cache_folder() / key[:32]
    if read_index(folder) is None:
        build_store(folder, layout(), {"name": name}, progress=progress)
    return open_store(folder, name)


def _resize_all(
    pictures: NDArray[np.uint8],
    shape: tuple[int, int, int],
    fit: Fit,
    images: NDArray[np.uint8],
    progress: Progress,
) -> None:
    work = partial(_resize, shape, fit)
    for row, picture in enumerate(in_threads(work, pictures)):
        images[row] = picture
        progress("resizing", row + 1, len(images))


def _resize(shape: tuple[int, int, int], fit: Fit, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    flat = Image.fromarray(np.ascontiguousarray(picture[..., 0] if picture.shape[-1] == 1 else picture))
    if shape[:2] != picture.shape[:2]:
        return fit_picture(flat, shape[0], "grey" if shape[2] == 1 else "rgb", fit)
    return np.asarray(flat.convert("L" if shape[2] == 1 else "RGB"), np.uint8).reshape(shape)


def _numbers(splits: dict[str, tuple[int, ...]]) -> dict[str, NDArray[np.int64]]:
    return {part: np.array(classes, dtype=np.int64) for part, classes in splits.items()}


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
        source = open_source(name, splits=splits, split_file=split_file)
        names: Sequence[str] = source.class_names
        counts, divided = source.counts.tolist(), False
        groups = None if source.groups is None else [source.group_names[group] for group in source.groups]
        parts: Mapping[str, Sequence[int]] = {part: c.tolist() for part, c in source.splits.items()}
        _, side, _, channels = source.images.shape
        grey = channels == 1
    else:
        options = FolderOptions(on_bad=on_bad, leave_out=leave_out)
        classes = _classes_of(path, options, fingerprint(path, scan(path)))
        names, counts = classes.names, [len(paths) for paths in classes.members]
        group_of, group_names = groups_of(names)
        groups = None if group_of is None else [group_names[group] for group in group_of]
        given = _given(classes, splits, split_file)
        parts, divided = given or divide(names), given is None
        side = max(SMALLEST, min(LARGEST, classes.side or classes.shorter))
        grey = classes.grey
    if not parts.get("validation") and len(parts.get("train", ())) > 1:
        parts = {**parts, **hold_out(parts["train"], names, groups)}
    named = {part: [names[c] for c in numbers] for part, numbers in parts.items()}
    return Survey(name, dict(zip(names, counts, strict=True)), named, side, grey, divided)


@functools.lru_cache(maxsize=2)
def _classes_of(root: Path, options: FolderOptions, holds: str) -> FolderClasses:
    """The classes of a folder; a command asks several times. ``holds`` is another when the folder changes."""
    del holds
    return classes_in(root, scan(root), options)


def _given(classes: FolderClasses, splits: str | None, split_file: str | None) -> Splits | None:
    """The splits that the user has asked for; None where we divide."""
    if split_file is not None:
        return read_split_file(user_path(split_file), classes.names)
    if splits in (ALL, TEST):
        return {str(splits): tuple(range(len(classes.names)))}
    return classes.splits
