"""CIFAR-100: cifar-100-python.tar.gz with the pickles train, test and meta. CIFAR-FS and FC100 share it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innerloop.core.errors import UserError
from innerloop.data.archives import Archive
from innerloop.data.catalogue import ClassList
from innerloop.data.layouts.layout import Layout, find_file, where
from innerloop.data.pickles import by_text, load_pickle, text
from innerloop.data.pictures import Progress

SIZE: Final = 32
PARTS: Final = ("train", "test")  # few-shot learning divides the classes and uses both parts


class _LabelledPixels(NamedTuple):
    pixels: NDArray[np.uint8]  # (n, 3072), channel after channel
    labels: NDArray[np.int64]
    files: list[str]


def cifar100(archives: Sequence[Archive], classes: ClassList) -> Layout:
    """Read the three pickles; rows are sorted by class, then part (train, test), then file name."""
    meta = _table(archives, "meta")
    names = [text(name) for name in meta.get("fine_label_names", [])]
    if names != list(classes.names):
        raise UserError(f"{where(archives)} does not name CIFAR-100's classes: this is not CIFAR-100.")
    parts = [_part(_table(archives, name), name, len(names)) for name in PARTS]
    labels = np.concatenate([part.labels for part in parts])
    files = [f"{name}/{file}" for name, part in zip(PARTS, parts, strict=True) for file in part.files]
    place = np.repeat(np.arange(len(parts)), [len(part.labels) for part in parts])
    order = np.lexsort((np.array(files), place, labels))

    def fill(images: NDArray[np.uint8], progress: Progress) -> None:
        """Writes the pictures of all parts, sorted, to ``images``."""
        pixels = np.concatenate([part.pixels for part in parts]).reshape(-1, 3, SIZE, SIZE)
        for start in range(0, len(order), 1000):
            rows = order[start : start + 1000]
            images[start : start + len(rows)] = pixels[rows].transpose(0, 2, 3, 1)
            progress("converting", start + len(rows), len(order))

    return Layout(
        classes.names,
        tuple(np.bincount(labels, minlength=len(names)).tolist()),
        [files[row] for row in order],
        (SIZE, SIZE, 3),
        fill,
        classes.groups,
        classes.group_names,
    )


def _table(archives: Sequence[Archive], name: str) -> dict[str, Any]:
    place = find_file(archives, name)
    if place is None:
        raise UserError(f"{where(archives)} lacks the file '{name}' of cifar-100-python.tar.gz.")
    archive, inside = place
    with archive.open(inside) as file:
        return by_text(load_pickle(file, f"'{inside}' in {archive.path.name}"), f"'{inside}'")


def _part(table: dict[str, Any], name: str, n_classes: int) -> _LabelledPixels:
    try:
        pixels = np.asarray(table["data"])
        labels = np.asarray(table["fine_labels"], dtype=np.int64)
        files = [text(file) for file in table["filenames"]]
    except (KeyError, TypeError, ValueError):
        raise UserError(f"'{name}' lacks data, fine_labels or filenames: this is not CIFAR-100.") from None
    fits = pixels.dtype == np.uint8 and pixels.shape == (len(labels), 3 * SIZE * SIZE) and labels.ndim == 1
    if not fits or len(files) != len(labels) or not np.isin(labels, np.arange(n_classes)).all():
        raise UserError(f"in '{name}' pictures and labels do not belong together: this is not CIFAR-100.")
    return _LabelledPixels(pixels, labels, files)
