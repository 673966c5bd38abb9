"""Pictures of any map-style torch ``Dataset``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from innerloop.core.errors import UserError
from innerloop.data.arrays import as_bytes, from_arrays
from innerloop.data.pictures import fit_picture, flatten
from innerloop.data.source import ImageSource


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
