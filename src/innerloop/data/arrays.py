"""Pictures that are arrays already: ``(X, y)``, a torch ``Dataset``, an .npz file."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from innerloop.core.errors import UserError
from innerloop.data.archives import ALWAYS, checked_zip
from innerloop.data.hashing import content_hash
from innerloop.data.layouts.layout import Layout
from innerloop.data.pictures import Progress, fit_picture, flatten, silent
from innerloop.data.source import ImageSource, ListedFiles
from innerloop.data.splits import divide, named_splits

_BLOCK: Final = 1000  # pictures at a time


def from_arrays(
    X: Any,
    y: Any,
    *,
    class_names: Sequence[str] | None = None,
    splits: Mapping[str, Sequence[Any]] | None = None,
    groups: Sequence[Any] | None = None,
    name: str = "arrays",
) -> ImageSource:
    """Labelled arrays in memory.

    Args:
        X: (N, H, W), (N, H, W, C) or (N, C, H, W); uint8, or floats between 0 and 1.
        y: (N,) integers or text.
        class_names: one per class, in the order of the sorted labels; by default the labels as text.
        splits: part to class names; by default 60/20/20 % of the classes.
        groups: one per class, in the same order.
        name: what to call it.

    Raises:
        UserError: the arrays cannot be read as labelled pictures.

    >>> X, y = np.zeros((4, 8, 8), np.uint8), ["b", "a", "b", "a"]
    >>> source = from_arrays(X, y, splits={"train": ["a", "b"]})
    >>> source.images.shape, source.counts.tolist(), source.files(0)
    ((4, 8, 8, 1), [2, 2], 'X[1]')
    """
    layout = arrays_layout(X, y, class_names, splits, groups)
    images = np.empty((sum(layout.counts), *layout.shape), np.uint8)
    layout.fill(images, silent)
    return ImageSource(
        name=name,
        images=images,
        starts=np.concatenate([[0], np.cumsum(layout.counts, dtype=np.int64)]),
        class_names=layout.class_names,
        splits={part: np.array(numbers, dtype=np.int64) for part, numbers in (layout.splits or {}).items()},
        groups=None if layout.groups is None else np.array(layout.groups, dtype=np.int64),
        group_names=layout.group_names,
        files=ListedFiles(layout.files),
        content_sha256=content_hash(images),
    )


def arrays_layout(
    X: Any,
    y: Any,
    class_names: Sequence[str] | None,
    splits: Mapping[str, Sequence[Any]] | None,
    groups: Sequence[Any] | NDArray[Any] | None,
    pattern: str = "X[{row}]",
) -> Layout:
    """Sort rows by class, in the order they have within it."""
    images, given = _channels_last(np.asarray(X)), np.asarray(y)
    _check_kind(images)
    if given.ndim != 1 or len(given) != len(images) or not len(images):
        raise UserError(
            f"X holds {len(images)} pictures, and y of shape {given.shape} is not a label for each of them."
        )
    _check_labels(given)
    known, labels = np.unique(given, return_inverse=True)
    names = [str(name) for name in (known if class_names is None else class_names)]
    _check_names(names, len(known))
    if groups is not None and np.ndim(groups) != 1:
        raise UserError(f"groups of shape {np.shape(groups)} are not a list: give each class its group.")
    if groups is not None and len(groups) != len(names):
        raise UserError(
            f"there are {len(names)} classes and {len(groups)} groups: give each class its group."
        )
    order = np.argsort(labels, kind="stable")
    group_names = tuple(dict.fromkeys(str(group) for group in groups)) if groups is not None else ()
    return Layout(
        tuple(names),
        tuple(np.bincount(labels, minlength=len(names)).tolist()),
        [pattern.format(row=row) for row in order],
        (images.shape[1], images.shape[2], images.shape[3]),
        partial(_fill, images, order),
        tuple(group_names.index(str(group)) for group in groups) if groups is not None else None,
        group_names,
        divide(names) if splits is None else named_splits(splits, names, "splits"),
    )


def _check_kind(pictures: NDArray[Any]) -> None:
    if pictures.dtype.kind not in "buif":
        raise UserError(
            f"pictures must be uint8, or floats between 0 and 1; these are {pictures.dtype}: save pixels."
        )
    if not pictures[:1].size and len(pictures):
        raise UserError(f"pictures of shape {pictures.shape} have no pixels: save them again.")


def _check_labels(labels: NDArray[Any]) -> None:
    """Whole numbers and text; floats too, if they are numbers at all."""
    plain = labels.dtype.kind in "buifUST" or all(
        isinstance(label, (int, np.integer, str)) for label in labels
    )
    if not plain:
        raise UserError(
            f"labels must be whole numbers or text, and these are {labels.dtype}: save them as such."
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise UserError("labels hold NaN or infinity, which name no class: leave those pictures out.")


def _check_names(names: Sequence[str], classes: int) -> None:
    if len(names) != classes:
        raise UserError(f"there are {classes} classes in y and {len(names)} class names.")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise UserError(f"the class name '{twice[0]}' is there twice: give every class a name of its own.")


def _fill(
    pictures: NDArray[Any], order: NDArray[np.int64], images: NDArray[np.uint8], progress: Progress
) -> None:
    for start in range(0, len(order), _BLOCK):
        rows = order[start : start + _BLOCK]
        images[start : start + len(rows)] = as_bytes(pictures[rows])
        progress("converting", start + len(rows), len(order))


def as_bytes(pictures: NDArray[Any]) -> NDArray[np.uint8]:
    """Floats between 0 and 1 as 0…255; uint8 as it is."""
    if pictures.dtype == np.uint8:
        return pictures
    if pictures.dtype == np.bool_:
        return pictures.astype(np.uint8) * np.uint8(255)
    check_values(pictures)
    if np.issubdtype(pictures.dtype, np.floating):
        return np.floor(pictures * 255 + 0.5).astype(np.uint8)
    return pictures.astype(np.uint8)


def check_values(pictures: NDArray[Any]) -> None:
    """Refuses numbers whose black and white are not known."""
    low, high = (float(pictures.min()), float(pictures.max())) if pictures.size else (0.0, 0.0)
    if pictures.dtype == np.bool_:
        return
    white = 1 if np.issubdtype(pictures.dtype, np.floating) else 255
    known = white == 1 or np.issubdtype(pictures.dtype, np.integer)
    if known and low >= 0 and high <= white:
        return
    if np.isnan(low):
        raise UserError(
            "pictures hold NaN, which is not a brightness: leave those pictures out, or repair them."
        )
    raise UserError(
        f"pictures must be uint8, or floats between 0 and 1; these are {pictures.dtype} from {low:g} to "
        f"{high:g}: undo the normalisation, or rescale them."
    )


def _channels_last(images: NDArray[Any]) -> NDArray[Any]:
    if images.ndim == 3:
        return images[..., None]
    if images.ndim == 4 and images.shape[3] in (1, 3):
        return images
    if images.ndim == 4 and images.shape[1] in (1, 3):
        return images.transpose(0, 2, 3, 1)
    raise UserError(
        f"pictures of shape {images.shape} are not (N, H, W), (N, H, W, 1 or 3) or (N, 1 or 3, H, W)."
    )


def from_dataset(
    dataset: Any,
    *,
    size: int | None = None,
    colour: Literal["auto", "grey", "rgb"] = "auto",
    splits: Mapping[str, Sequence[Any]] | None = None,
    name: str = "dataset",
) -> ImageSource:
    """Any map-style torch ``Dataset`` whose items are (picture, label); it is read once, into memory.

    Pictures may be Pillow images, arrays (H, W) or (H, W, C), or tensors (C, H, W) as torchvision makes them.

    Args:
        dataset: has ``len`` and gives items by number; ``classes``, where it has them, names its labels.
        size: side in pixels; needed where the pictures differ in size.
        colour: one channel or three; "auto" keeps what they have.
        splits: part to class names.
        name: what to call it.

    Raises:
        UserError: its items are no labelled pictures.
    """
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise UserError("from_dataset needs a map-style Dataset, with len() and items by number.")
    pictures: list[NDArray[np.uint8]] = []
    labels: list[int | str] = []
    for row in range(len(dataset)):
        picture, label = _item(dataset[row], row)
        pictures.append(_sized(picture, size, colour))
        labels.append(label)
    shapes = {picture.shape for picture in pictures}
    if len(shapes) != 1:
        raise UserError(
            f"the pictures of the dataset have {len(shapes)} different shapes: give from_dataset a size."
        )
    names = _class_names(getattr(dataset, "classes", None), labels)
    return from_arrays(np.stack(pictures), labels, class_names=names, splits=splits, name=name)


def _item(item: Any, row: int) -> tuple[Any, Any]:
    try:
        picture, label = item[0], item[1]
    except (TypeError, KeyError, IndexError):
        raise UserError(f"item {row} of the dataset is not a pair of a picture and a label.") from None
    label = label.item() if hasattr(label, "item") else label
    if not isinstance(label, (int, str)):
        raise UserError(f"the label of item {row} is {label!r}, neither a whole number nor text.")
    return picture, label


def _sized(picture: Any, size: int | None, colour: str) -> NDArray[np.uint8]:
    """(H, W, C) of a Pillow image, a tensor or an array."""
    if isinstance(picture, Image.Image):
        flat = picture if picture.mode in ("L", "RGB") else flatten(picture)
    else:
        array = np.asarray(picture)  # tensors on the CPU give their numbers away
        tensor_like = array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3)
        array = as_bytes(array.transpose(1, 2, 0) if tensor_like else array)
        flat = Image.fromarray(array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array)
    if size is None and colour == "auto":
        made = np.asarray(flat)
        return made[..., None] if made.ndim == 2 else made
    kind: Any = ("grey" if flat.mode == "L" else "rgb") if colour == "auto" else colour
    if size is None and flat.width != flat.height:
        raise UserError("the pictures of the dataset are not square: give from_dataset a size.")
    return fit_picture(flat, size or flat.width, kind)


def _class_names(known: Any, labels: Sequence[int | str]) -> list[str] | None:
    """The dataset's own names for the labels that occur, where they are numbers that index them."""
    numbers = sorted({label for label in labels if isinstance(label, int)})
    if known is None or len(numbers) < len(set(labels)) or not numbers:
        return None
    if not 0 <= numbers[0] <= numbers[-1] < len(known):
        return None
    names = {label: str(known[label]) for label in numbers}
    often = Counter(names.values())  # ImageNet has two cranes: their numbers tell them apart
    return [name if often[name] == 1 else f"{name} ({label})" for label, name in names.items()]


_IMAGES: Final = ("images", "X", "x", "data")
_LABELS: Final = ("labels", "y", "targets", "fine_labels")
_NAMES: Final = ("class_names", "names", "classes")


def npz_layout(path: Path) -> Layout:
    """Pictures (images, X, x, data) and labels (labels, y, targets) of an .npz file; names and groups."""
    # pictures of shape (classes, drawings, H, W) with names need no labels
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
