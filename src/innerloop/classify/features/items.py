"""Pictures as they are given (files, arrays, Pillow's pictures), one by one, and what stands for each."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from innerloop.core.errors import UserError
from innerloop.core.place import user_path
from innerloop.data.arrays import as_bytes
from innerloop.data.pictures import BadPictureError, flatten
from innerloop.data.preparing import decode, read_bytes
from innerloop.data.source import ImageSource

Digest = bytes
"""sha256 of what a picture holds."""
_CHANNELS = (1, 3, 4)


class Item(NamedTuple):
    """One picture: a name for messages, and a file, an array or a picture of Pillow."""

    name: str
    given: Path | NDArray[Any] | Image.Image

    def digest(self) -> Digest:
        """Stands for its content: two files with the same bytes are the same picture."""
        if isinstance(self.given, Path):
            return hashlib.sha256(read_bytes(self.given)).digest()
        picture = self.picture()
        head = f"{picture.mode} {picture.size}\0".encode()
        return hashlib.sha256(head + picture.tobytes()).digest()

    def picture(self) -> Image.Image:
        """Decoded, mode "L" or "RGB"."""
        if isinstance(self.given, Path):
            return decode(read_bytes(self.given))
        if isinstance(self.given, Image.Image):
            return flatten(self.given)
        return _from_array(self.given)


def listed(pictures: Any) -> list[Item]:
    """Every picture by itself, from whatever they were given as.

    >>> [item.name for item in listed(np.zeros((2, 8, 8, 3), np.uint8))]
    ['picture 0', 'picture 1']
    """
    if isinstance(pictures, ImageSource):
        return [Item(pictures.files(row), image) for row, image in enumerate(pictures.images)]
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


def _item(number: int, one: Any) -> Item:
    if isinstance(one, (str, Path)):
        return Item(str(one), user_path(one))
    name = f"picture {number}"
    if isinstance(one, Image.Image):
        return Item(str(getattr(one, "filename", "")) or name, one)
    array = one.detach().cpu().numpy() if hasattr(one, "detach") else np.asarray(one)
    if array.ndim not in (2, 3) or array.dtype.kind not in "buif":
        raise UserError(
            f"{name} is a {type(one).__name__} of shape {array.shape}: give a file name, a picture, "
            "or an array (H, W), (H, W, C) or (C, H, W)."
        )
    return Item(name, array)


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
