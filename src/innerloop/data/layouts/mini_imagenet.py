"""mini-ImageNet: mini-imagenet-cache-{train,val,test}.pkl, or csv lists with a folder of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innerloop.core.errors import UserError
from innerloop.data.archives import Archive
from innerloop.data.catalogue import ClassList
from innerloop.data.layouts.imagenet import SIZE, from_files, read_lists
from innerloop.data.layouts.layout import Layout, where
from innerloop.data.pickles import by_text, load_pickle, text
from innerloop.data.pictures import Progress


def mini_imagenet(archives: Sequence[Archive], classes: ClassList) -> Layout:
    """Either form. The published list decides which split a class is in, never the name of a file."""
    pickles = [
        (archive, name)
        for archive in archives
        for name in archive.names
        if name.lower().endswith((".pkl", ".pickle")) and "labelsplit" not in name
    ]
    if pickles:
        return _from_pickles(pickles, classes)
    return from_files(archives, classes, read_lists(archives))


def _from_pickles(pickles: Sequence[tuple[Archive, str]], classes: ClassList) -> Layout:
    tables = [_read(archive, name) for archive, name in pickles]
    home = {label: table for table, (_, rows) in enumerate(tables) for label in rows}
    missing = [name for name in classes.names if name not in home]
    if missing:
        raise UserError(
            f"{where([archive for archive, _ in pickles])} lacks {len(missing)} of mini-ImageNet's "
            f"{len(classes.names)} classes, such as {missing[0]}: give all three, --from for each of "
            "mini-imagenet-cache-train.pkl, -val.pkl and -test.pkl."
        )
    where_from = [(label, home[label], tables[home[label]][1][label]) for label in classes.names]

    def fill(images: NDArray[np.uint8], progress: Progress) -> None:
        """Writes the pictures class by class to ``images``."""
        start = 0
        for _, table, rows in where_from:
            images[start : start + len(rows)] = tables[table][0][rows]
            start += len(rows)
            progress("converting", start, len(images))

    return Layout(
        classes.names,
        tuple(len(rows) for _, _, rows in where_from),
        [
            f"{pickles[table][1].rpartition('/')[2]}#{label}/{row}"
            for label, table, rows in where_from
            for row in rows
        ],
        (SIZE, SIZE, 3),
        fill,
    )


def _read(archive: Archive, name: str) -> tuple[NDArray[np.uint8], dict[str, NDArray[np.int64]]]:
    with archive.open(name) as file:
        table = by_text(load_pickle(file, f"'{name}'"), f"'{name}'")
    try:
        images = np.asarray(table["image_data"])
        rows = {text(label): _indices(places) for label, places in table["class_dict"].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UserError(
            f"'{name}' lacks image_data and class_dict: this is not a mini-imagenet-cache file."
        ) from None
    every = np.concatenate([*rows.values(), np.zeros(0, np.int64)])
    inside = not every.size or 0 <= every.min() <= every.max() < len(images)
    if images.dtype != np.uint8 or images.shape[1:] != (SIZE, SIZE, 3) or not inside:
        raise UserError(f"'{name}' does not hold {SIZE}×{SIZE} colour pictures and their classes.")
    return images, rows


def _indices(places: Any) -> NDArray[np.int64]:
    rows = np.asarray(places, dtype=np.int64)
    if rows.ndim != 1:
        raise ValueError
    return rows
