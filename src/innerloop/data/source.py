"""What every dataset becomes: pictures sorted by class, and the published lists of classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.files import check_plain_file


class ImageSource(NamedTuple):
    """Labelled pictures, class after class, in memory or mapped from a file.

    Attributes:
        name: as in the catalogue, or the folder's.
        images: (N, H, W, C) uint8; the rows of a class are contiguous.
        starts: (n_classes + 1,) int64; class c owns rows ``starts[c]:starts[c + 1]``.
        class_names: one per class.
        splits: "train", "validation", "test" (or the user's words) to int64 class numbers.
        groups: (n_classes,) int64 group of each class (alphabet, superclass), or None.
        group_names: one per group.
        files: row to file name inside the publisher's archive or the user's folder.
        content_sha256: over the pixels, see ``content_hash``.
    """

    name: str
    images: NDArray[np.uint8]
    starts: NDArray[np.int64]
    class_names: tuple[str, ...]
    splits: dict[str, NDArray[np.int64]]
    groups: NDArray[np.int64] | None
    group_names: tuple[str, ...]
    files: Callable[[int], str]
    content_sha256: str

    @property
    def n_classes(self) -> int:
        """How many classes there are, in all splits together."""
        return len(self.class_names)

    @property
    def counts(self) -> NDArray[np.int64]:
        """(n_classes,) pictures of each class."""
        return np.diff(self.starts)

    def __reduce__(self) -> tuple[Any, ...]:
        """Mapped pictures travel to worker processes as the name of their file, not as their bytes."""
        images = self.images
        whole = isinstance(images, np.memmap) and images.filename and _mapped_size(images) == images.size
        if not whole:
            return ImageSource, tuple(self)
        assert isinstance(images, np.memmap)
        return _reopen, (str(images.filename), self._replace(images=np.empty((0, 0, 0, 0), np.uint8)))


@dataclass(frozen=True)
class ListedFiles:
    """File names from a sequence; picklable, unlike a closure."""

    names: Sequence[str]

    def __call__(self, row: int) -> str:
        """The name of a row."""
        return str(self.names[row])


@dataclass(frozen=True)
class NumberedFiles:
    """File names made from the row, for arrays that never were files."""

    pattern: str

    def __call__(self, row: int) -> str:
        """The name of a row."""
        return self.pattern.format(row=row)


def labels(source: ImageSource) -> NDArray[np.int64]:
    """(N,) class number of every row."""
    return np.repeat(np.arange(source.n_classes, dtype=np.int64), source.counts)


def classes_of(source: ImageSource, split: str) -> NDArray[np.int64]:
    """Class numbers of a split.

    Raises:
        UserError: there is no such split; the message names those there are.
    """
    if split not in source.splits:
        known = ", ".join(f"'{name}'" for name in source.splits)
        raise UserError(
            f"'{source.name}' has no split '{split}'{did_you_mean(split, source.splits)}: it has {known}."
        )
    return source.splits[split]


def only_rows(source: ImageSource, rows: Sequence[int], split: str) -> ImageSource:
    """Some pictures of a source, in memory; their classes are the only ones, and all in one split."""
    chosen = np.array(sorted(rows), np.int64)
    classes, counts = np.unique(labels(source)[chosen], return_counts=True)
    return source._replace(
        images=np.asarray(source.images[chosen]),
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        class_names=tuple(source.class_names[c] for c in classes),
        splits={split: np.arange(len(classes), dtype=np.int64)},
        groups=None if source.groups is None else source.groups[classes],
        files=ListedFiles([source.files(int(row)) for row in chosen]),
    )


def map_array(path: Path) -> NDArray[np.uint8]:
    """Open ``images.npy`` without reading it."""
    check_plain_file(path)
    images: NDArray[np.uint8] = np.load(path, mmap_mode="r", allow_pickle=False)
    return images


def _mapped_size(images: np.memmap[Any, Any]) -> int:
    path = Path(str(images.filename))
    return path.stat().st_size - images.offset if path.is_file() else -1


def _reopen(path: str, rest: ImageSource) -> ImageSource:
    return rest._replace(images=map_array(Path(path)))
