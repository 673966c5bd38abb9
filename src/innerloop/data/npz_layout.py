"""Pictures and labels of one's own in an .npz file."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from innerloop.core.errors import UserError
from innerloop.data.archives import ALWAYS, checked_zip
from innerloop.data.arrays import arrays_layout
from innerloop.data.layouts.layout import Layout

_IMAGES: Final = ("images", "X", "x", "data")
_LABELS: Final = ("labels", "y", "targets", "fine_labels")
_NAMES: Final = ("class_names", "names", "classes")


def npz_layout(path: Path) -> Layout:
    """Pictures and labels of an .npz file.

    The pictures are called images, X, x or data, the labels labels, y or targets; names (or class_names) and
    groups are optional. Pictures of shape (classes, drawings, H, W) with names need no labels.
    """
    table, every = _open_npz(path)
    images = _first(table, _IMAGES)
    labels, names = _first(table, _LABELS), _first(table, _NAMES)
    if images is None:
        raise UserError(f"{path.name} has no array called images (or X): it has {', '.join(every)}.")
    if names is not None and names.ndim != 1:
        raise UserError(
            f"the names in {path.name} have shape {names.shape}: save a list, one name per class."
        )
    if not images.ndim:
        raise UserError(f"images in {path.name} is of shape (), a single number: save an array of pictures.")
    if labels is None and names is not None and len(names) == len(images) and images.ndim in (4, 5):
        labels = np.repeat(np.arange(len(images)), images.shape[1])
        images = images.reshape(-1, *images.shape[2:])
    if labels is None:
        raise UserError(f"{path.name} has no array called labels (or y): it has {', '.join(every)}.")
    known = None if names is None else [str(name) for name in names]
    if known is not None and np.issubdtype(labels.dtype, np.integer):
        known = _present(known, labels, path)
    pattern = path.name.replace("{", "{{").replace("}", "}}") + "#{row}"
    return arrays_layout(images, labels, known, None, table.get("groups"), pattern)


def _open_npz(path: Path) -> tuple[dict[str, NDArray[Any]], list[str]]:
    unpacked = 0
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in checked_zip(archive, path))
        with np.load(path, allow_pickle=False) as table:
            wanted = (*_IMAGES, *_LABELS, *_NAMES, "groups")
            return {key: table[key] for key in table.files if key in wanted}, list(table.files)
    except FileNotFoundError:
        raise UserError(f"there is no file {path}.") from None
    except UserError:
        raise
    except Exception as error:  # a damaged archive fails in many ways
        if isinstance(error, MemoryError) and unpacked > ALWAYS:  # otherwise it only says that it is large
            raise
        raise UserError(
            f"{path.name} is damaged, or not an .npz file of plain arrays ({str(error)[:80]})."
        ) from None


def _first(table: Mapping[str, NDArray[Any]], keys: Sequence[str]) -> NDArray[Any] | None:
    return next((table[key] for key in keys if key in table), None)


def _present(names: Sequence[str], labels: NDArray[Any], path: Path) -> list[str]:
    """The names of the labels that occur, which index the names."""
    present = np.unique(labels)
    if present.size and (present[0] < 0 or present[-1] >= len(names)):
        raise UserError(f"{path.name} names {len(names)} classes, but its labels go up to {present[-1]}.")
    return [names[label] for label in present]
