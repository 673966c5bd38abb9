"""Arrays in .npz files, read a block at a time: some are larger than memory."""

from __future__ import annotations

import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import IO, Any, Final, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from innerloop.core.errors import UserError
from innerloop.data.archives import Archive
from innerloop.data.catalogue import ClassList
from innerloop.data.layouts.imagenet import SIZE, decode_84, from_files
from innerloop.data.layouts.layout import Layout, find_file, where
from innerloop.data.pickles import by_text, load_pickle, text
from innerloop.data.pictures import BadPictureError, Progress, in_threads

BLOCK: Final = 1 << 25  # bytes at a time
Shape = tuple[int, ...]


def stream_rows(file: IO[bytes], key: str, name: str) -> Iterator[tuple[Shape, NDArray[Any]]]:
    """Blocks of rows of one array, each with the shape of the whole."""
    try:
        with zipfile.ZipFile(file) as archive, archive.open(f"{key}.npy") as member:
            shape, fortran, dtype = _header(member)
            if dtype.hasobject or (fortran and len(shape) > 1):
                raise UserError(
                    f"'{key}' in {name} is not a plain array in C order; save it again with numpy."
                )
            row = int(np.prod(shape[1:], dtype=np.int64))
            step = max(1, BLOCK // max(1, row * dtype.itemsize))
            for start in range(0, shape[0], step):
                rows = min(step, shape[0] - start)
                data = member.read(rows * row * dtype.itemsize)
                yield shape, np.frombuffer(data, dtype).reshape(rows, *shape[1:])
    except KeyError:
        raise UserError(f"{name} has no array '{key}'.") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError) as error:
        raise UserError(f"{name} is damaged ({str(error)[:80]}); get or save it again.") from None


def _header(member: IO[bytes]) -> tuple[Shape, bool, np.dtype[Any]]:
    version = npy.read_magic(member)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    return read(member)


PARTS: Final = {"train": "train", "val": "validation", "test": "test"}
Rows = Callable[[], Iterator[NDArray[np.uint8]]]


class _Part(NamedTuple):
    labels: NDArray[np.int64]
    names: list[str]
    general: list[int] | None  # group of each class
    general_names: list[str]
    rows: Rows


def tiered_imagenet(archives: Sequence[Archive], classes: ClassList) -> Layout:
    """Either form."""
    if find_file(archives, "train_labels.pkl") is None:
        return from_files(archives, classes, {})
    parts = {part: _part(archives, part) for part in PARTS}
    names, numbers, first = _unique(parts), {}, 0
    for part, content in parts.items():
        numbers[part] = tuple(range(first, first + len(content.names)))
        first += len(content.names)
    groups, group_names = _groups(list(parts.values()))
    orders = {part: np.argsort(content.labels, kind="stable") for part, content in parts.items()}
    counts = [
        int(count)
        for content in parts.values()
        for count in np.bincount(content.labels, minlength=len(content.names))
    ]

    def fill(images: NDArray[np.uint8], progress: Progress) -> None:
        """Writes the pictures of all parts, sorted by class, to ``images``."""
        start = done = 0
        for part, content in parts.items():
            place = np.empty(len(orders[part]), np.int64)
            place[orders[part]] = np.arange(start, start + len(place))
            for row, picture in enumerate(content.rows()):
                images[place[row]] = picture
                done += 1
                progress("converting", done, len(images))
            start += len(place)

    return Layout(
        tuple(names),
        tuple(counts),
        [f"{part}_images#{row}" for part, order in orders.items() for row in order],
        (SIZE, SIZE, 3),
        fill,
        groups,
        group_names,
        {PARTS[part]: content for part, content in numbers.items()},
    )


def _part(archives: Sequence[Archive], part: str) -> _Part:
    table = _pickle(archives, f"{part}_labels.pkl")
    try:
        labels = np.asarray(table.get("label_specific", table.get("labels")), dtype=np.int64)
        names = [text(name) for name in table.get("label_specific_str") or []]
        if not names:  # bare numbers, which need not begin at 0
            known, labels = np.unique(labels, return_inverse=True)
            names = [f"{part}-{number}" for number in known]
        if labels.ndim != 1 or not labels.size or labels.min() < 0 or labels.max() >= len(names):
            raise ValueError
    except (TypeError, ValueError):
        raise UserError(f"'{part}_labels.pkl' does not hold a class for every picture.") from None
    general, general_names = _general(table, labels, len(names))
    return _Part(labels, names, general, general_names, _rows(archives, part, len(labels)))


def _general(
    table: dict[str, Any], labels: NDArray[np.int64], n_classes: int
) -> tuple[list[int] | None, list[str]]:
    """Superclasses, where the file's numbers can be right."""
    # the published code counted some one too high; numbers that name no superclass show it
    names = [text(name) for name in table.get("label_general_str") or []]
    general = np.asarray(table.get("label_general", []))
    if general.shape != labels.shape or not names:
        return None, []
    of = [np.unique(general[labels == c]) for c in range(n_classes)]
    if any(len(numbers) != 1 or not 0 <= numbers[0] < len(names) for numbers in of):
        return None, []
    return [int(numbers[0]) for numbers in of], names


def _groups(parts: Sequence[_Part]) -> tuple[tuple[int, ...] | None, tuple[str, ...]]:
    groups: list[int] = []
    names: list[str] = []
    for part in parts:
        if part.general is None:
            return None, ()
        groups += [len(names) + group for group in part.general]
        names += part.general_names
    return tuple(groups), tuple(names)


def _unique(parts: dict[str, _Part]) -> list[str]:
    """Class names; those that occur twice (both cranes) with their split and number."""
    seen = Counter(name for part in parts.values() for name in part.names)
    return [
        name if seen[name] == 1 else f"{name} ({part} {number})"
        for part, content in parts.items()
        for number, name in enumerate(content.names)
    ]


def _rows(archives: Sequence[Archive], part: str, expected: int) -> Rows:
    if place := find_file(archives, f"{part}_images_png.pkl"):
        return partial(_pngs, *place, expected)
    if place := find_file(archives, f"{part}_images.npz"):
        return partial(_arrays, *place, expected)
    raise UserError(f"{where(archives)} lacks {part}_images_png.pkl (or {part}_images.npz).")


def _pngs(archive: Archive, name: str, expected: int) -> Iterator[NDArray[np.uint8]]:
    with archive.open(name) as file:
        pictures = load_pickle(file, f"'{name}'")
    if not isinstance(pictures, list) or len(pictures) != expected:
        raise UserError(f"'{name}' does not hold one picture for each of {expected} labels.")
    return in_threads(partial(_png, name), pictures)


def _png(name: str, packed: Any) -> NDArray[np.uint8]:
    try:
        return decode_84(packed if isinstance(packed, bytes) else np.asarray(packed, np.uint8).tobytes())
    except (BadPictureError, ValueError, TypeError) as error:
        raise UserError(f"a picture in '{name}' cannot be read ({error}).") from None


def _arrays(archive: Archive, name: str, expected: int) -> Iterator[NDArray[np.uint8]]:
    with archive.open(name) as file:
        for shape, block in stream_rows(file, "images", name):
            if shape != (expected, SIZE, SIZE, 3) or block.dtype != np.uint8:
                raise UserError(f"'{name}' holds {shape}, not ({expected}, {SIZE}, {SIZE}, 3).")
            yield from block[..., ::-1]


def _pickle(archives: Sequence[Archive], name: str) -> dict[str, Any]:
    place = find_file(archives, name)
    if place is None:
        raise UserError(f"{where(archives)} lacks {name}.")
    with place[0].open(place[1]) as file:
        return by_text(load_pickle(file, f"'{name}'"), f"'{name}'")
