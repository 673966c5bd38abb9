"""Pictures as they are given (files, arrays, Pillow's pictures), one by one, and what stands for each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.paths import user_path
from innerloop.core.preprocessing import Preprocessing
from innerloop.data.arrays import as_bytes, check_values
from innerloop.data.folder import Bad, unreadable
from innerloop.data.pictures import BadPictureError, decode, flatten, prepare, read_bytes
from innerloop.data.source import ImageSource

Digest = bytes  # sha256 of what a picture holds
_CHANNELS = (1, 3, 4)


class PictureInput(NamedTuple):
    """One picture: a name for messages, and a file, an array or a picture of Pillow."""

    name: str
    given: Path | NDArray[Any] | Image.Image

    def digest(self) -> Digest:
        """Stands for its content: two files with the same bytes are the same picture."""
        if isinstance(self.given, Path):
            return hashlib.sha256(read_bytes(self.given)).digest()
        picture = self.image()
        head = f"{picture.mode} {picture.size}\0".encode()
        return hashlib.sha256(head + picture.tobytes()).digest()

    def image(self) -> Image.Image:
        """Decoded, mode "L" or "RGB"."""
        if isinstance(self.given, Path):
            return decode(read_bytes(self.given))
        if isinstance(self.given, Image.Image):
            return flatten(self.given)
        return _from_array(self.given)


def pictures_in(pictures: Any) -> list[PictureInput]:
    """Every picture by itself, from whatever they were given as."""
    if isinstance(pictures, ImageSource):
        return [PictureInput(pictures.files(row), image) for row, image in enumerate(pictures.images)]
    if isinstance(pictures, (str, Path, Image.Image)):
        pictures = [pictures]
    elif hasattr(pictures, "detach"):  # a tensor; torch need not be imported to know
        pictures = _stack(pictures.detach().cpu().numpy())
    elif isinstance(pictures, np.ndarray) and pictures.dtype.kind not in "OUST":
        pictures = _stack(pictures)
    try:
        given: Sequence[Any] = list(pictures)
    except TypeError:
        raise UserError(
            f"pictures must be files, arrays or pictures of Pillow, not {type(pictures).__name__}."
        ) from None
    return [_item(number, one) for number, one in enumerate(given)]


def _stack(array: NDArray[Any]) -> Sequence[Any]:
    """One picture as a list of it; several as they are stacked."""
    if array.ndim == 2 or (array.ndim == 3 and _has_channels(array)):
        return [array]
    if array.ndim in (3, 4):
        return list(array)
    raise UserError(
        f"an array of shape {array.shape} is not a stack of pictures: "
        "give (n, H, W), (n, H, W, C) or (n, C, H, W)."
    )


def _has_channels(array: NDArray[Any]) -> bool:
    """Whether three axes are those of one picture with channels, rather than of several grey ones."""
    return array.shape[-1] in _CHANNELS or (array.shape[0] in _CHANNELS and array.shape[0] < array.shape[1])


def _item(number: int, one: Any) -> PictureInput:
    if isinstance(one, (str, Path)):
        return PictureInput(str(one), user_path(one))
    name = f"picture {number}"
    if isinstance(one, Image.Image):
        return PictureInput(str(getattr(one, "filename", "")) or name, one)
    array = one.detach().cpu().numpy() if hasattr(one, "detach") else np.asarray(one)
    if array.ndim not in (2, 3) or array.dtype.kind not in "buif":
        raise UserError(
            f"{name} is a {type(one).__name__} of shape {array.shape}: give a file name, a picture, "
            "or an array (H, W), (H, W, C) or (C, H, W)."
        )
    return PictureInput(name, array)


def _from_array(array: NDArray[Any]) -> Image.Image:
    if array.ndim == 3 and array.shape[-1] not in _CHANNELS and array.shape[0] in _CHANNELS:
        array = np.moveaxis(array, 0, -1)
    if array.ndim == 3 and array.shape[-1] not in _CHANNELS:
        raise BadPictureError(f"an array of shape {array.shape} has neither one, three nor four channels")
    try:
        pixels = as_bytes(array)
    except UserError as error:
        raise BadPictureError(str(error)) from None
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[:, :, 0]
    if not pixels.size:
        raise BadPictureError("it has no pixels")
    return flatten(Image.fromarray(np.ascontiguousarray(pixels)))


def prepare_pictures(pictures: Any, how: Preprocessing) -> NDArray[np.uint8]:
    """Pictures as a network was trained on them, ``(n, H, W, C)``; all that cannot be read are named."""
    ready: list[NDArray[np.uint8]] = []
    bad: Bad = []
    for picture in pictures_in(pictures):
        try:
            ready.append(prepare(picture.image(), how))
        except BadPictureError as error:
            bad.append((picture.name, str(error)))
    if bad:
        raise unreadable(bad)
    return np.stack(ready)


PLAIN: tuple[type, ...] = (str, bool, int, float)


def pack_labels(labels: Sequence[Any]) -> list[list[Any]]:
    """Labels as pairs of type and value that JSON can hold."""
    return [[_type_name(label), label.item() if isinstance(label, np.generic) else label] for label in labels]


def _type_name(label: Any) -> str:
    if isinstance(label, np.generic) and type(label.item()) in PLAIN:
        return "numpy.str" if isinstance(label, np.str_) else label.dtype.name
    if type(label) in PLAIN:
        return type(label).__name__
    raise UserError(
        f"the label {label!r} is a {type(label).__name__}, which a file cannot give back as it was: use text "
        "or numbers as labels."
    )


def unpack_labels(packed: Sequence[Any]) -> list[Any]:
    """What :func:`pack_labels` was given."""
    return [_restored(kind, value) for kind, value in packed]


def _restored(kind: str, value: Any) -> Any:
    for plain in PLAIN:
        if kind == plain.__name__:
            return plain(value)
    return np.str_(value) if kind == "numpy.str" else np.dtype(kind).type(value)


def sorted_labels(labels: Sequence[Any]) -> list[Any]:
    """The different labels in order; as text where they are of several types."""
    try:
        return sorted(set(labels))
    except TypeError:
        return sorted(set(labels), key=str)


def label_array(labels: Sequence[Any]) -> NDArray[Any]:
    """Labels as an array that gives each back as it was."""
    kinds = {type(label) for label in labels}
    if len(kinds) == 1 and issubclass(next(iter(kinds)), (str, bool, int, float, np.generic)):
        return np.array(list(labels))
    made = np.empty(len(labels), dtype=object)
    made[:] = list(labels)
    return made


def list_labels(labels: Any) -> list[Any]:
    """Labels as a list of plain values, from a list, an array or a tensor."""
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise UserError(
            f"y must list one label for every picture, such as ['ant', 'bee'], not {labels!r}; a folder with "
            "one folder of pictures per class is read by `innerloop predict --support FOLDER PICTURES`."
        )
    return list(labels.tolist() if hasattr(labels, "tolist") else labels)


def place_labels(labels: Sequence[Any], known: Sequence[Any]) -> Tensor:
    """Labels as places in the list of classes."""
    place = {name: i for i, name in enumerate(known)}
    if strange := [label for label in labels if label not in place]:
        raise UserError(f"label {strange[0]!r} is none of the classes given: add it to their names.")
    return torch.tensor([place[label] for label in labels])


def batch_of(X: Any, how: Preprocessing, dtype: torch.dtype) -> Tensor:
    """``(n, C, H, W)`` in 0…1; files are resized, arrays are not, because nobody could see it happen."""
    height, width, channels = how.shape
    if isinstance(X, (list, tuple)) and X and isinstance(X[0], (str, Path)):
        X = prepare_pictures(X, how)
    array = X.detach().cpu().numpy() if isinstance(X, Tensor) else np.asarray(X)
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim == 4 and array.shape[1:] == (channels, height, width) and array.shape[-1] != channels:
        array = np.moveaxis(array, 1, -1)
    if array.ndim != 4 or array.shape[1:] != (height, width, channels):
        raise UserError(
            f"pictures of shape {tuple(array.shape[1:])} do not fit: it was trained on {height}×{width} "
            f"with {channels} channel{'s' * (channels > 1)}, so bring them to that first, or give file "
            "names, which are read so."
        )
    check_values(array)
    floats = np.issubdtype(array.dtype, np.floating)
    x = torch.from_numpy(np.moveaxis(array if floats else as_bytes(array), -1, 1).copy()).to(dtype)
    return x if floats else x / 255
