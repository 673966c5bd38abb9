"""What a loader finds in an archive before any pixel is decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from innerloop.core.errors import UserError
from innerloop.data.archives import Archive
from innerloop.data.pictures import BadPictureError, Progress, in_threads

A = TypeVar("A")
Fill = Callable[[NDArray[np.uint8], Progress], str | None]


class Layout(NamedTuple):
    """Classes, counts and file names, and how to fill the array."""

    class_names: tuple[str, ...]
    counts: tuple[int, ...]
    files: Sequence[str]
    shape: tuple[int, int, int]
    fill: Fill
    groups: tuple[int, ...] | None = None
    group_names: tuple[str, ...] = ()
    splits: dict[str, tuple[int, ...]] | None = None


def where(archives: Sequence[Archive]) -> str:
    """Archives by name, for a message."""
    return ", ".join(archive.path.name for archive in archives)


def find_file(archives: Sequence[Archive], name: str) -> tuple[Archive, str] | None:
    """The file of that name in whichever archive and folder it is, or None."""
    for archive in archives:
        for inside in archive.names:
            if inside.rpartition("/")[2] == name:
                return archive, inside
    return None


def grouped_rows(members: Mapping[str, list[A]], classes: Sequence[str]) -> tuple[list[A], list[int]]:
    """Members class after class, and how many each class has."""
    rows = [name for label in classes for name in members[label]]
    return rows, [len(members[label]) for label in classes]


def fill_from(files: Sequence[tuple[Archive, str]], decode: Callable[[bytes], NDArray[np.uint8]]) -> Fill:
    """A ``fill`` that decodes the file of every row, in the order in which archives have them packed."""
    packed: dict[int, tuple[Archive, dict[str, int]]] = {}
    for number, (archive, inside) in enumerate(files):
        packed.setdefault(id(archive), (archive, {}))[1][inside] = number

    def fill(images: NDArray[np.uint8], progress: Progress) -> None:
        """Decodes all files in threads, and writes each picture to its row of ``images``."""

        def work(item: tuple[str, int, bytes]) -> tuple[int, NDArray[np.uint8]]:
            """A row and its picture."""
            name, row, data = item
            try:
                return row, decode(data)
            except BadPictureError as error:
                raise UserError(
                    f"'{name}' in the archive cannot be read as a picture ({error}); get the archive again."
                ) from None

        for done, (row, picture) in enumerate(in_threads(work, _items(packed.values())), start=1):
            images[row] = picture
            progress("converting", done, len(files))

    return fill


def _items(packed: Iterable[tuple[Archive, Mapping[str, int]]]) -> Iterator[tuple[str, int, bytes]]:
    for archive, rows in packed:
        for name, data in archive.stream(rows):
            yield name, rows[name], data
