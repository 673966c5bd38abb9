"""Pictures brought to the size that a network was trained on, and refused before they fill the memory."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from innerloop.core.preprocessing import RESAMPLES, Preprocessing, Resample, Side
from innerloop.data.pictures import (
    ENORMOUS,
    FORMATS,
    BadPictureError,
    check_is_file,
    open_picture,
    reason_of,
    too_large,
)

MOST_BYTES = 1 << 29
"""Of a file that is read."""


def read_bytes(path: Path) -> bytes:
    """A picture file as it is."""
    check_is_file(path)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadPictureError(f"the file has more than {MOST_BYTES >> 20} MB")
        return path.read_bytes()
    except OSError as error:
        raise BadPictureError(error.strerror or "it cannot be read") from None


def decode(data: bytes) -> Image.Image:
    """As :func:`innerloop.data.pictures.open_picture`; a giant is refused from its head, not decoded."""
    if not data:
        raise BadPictureError("the file is empty")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            giant = too_large(picture.size)
    except Image.DecompressionBombError:
        raise BadPictureError(ENORMOUS) from None
    except Exception as error:  # heads of damaged files fail in many ways
        raise BadPictureError(reason_of(error)) from None
    if giant is not None:
        raise BadPictureError(giant)
    return open_picture(data)


def prepare(picture: Image.Image, how: Preprocessing) -> NDArray[np.uint8]:
    """(height, width, channels) as :class:`Preprocessing` says, still 8-bit.

    >>> square = Image.new("RGB", (40, 20), (255, 0, 0))
    >>> prepare(square, Preprocessing((8, 8), "short", crop=(8, 8))).shape
    (8, 8, 3)
    """
    picture = picture.convert("RGB" if how.colour == "rgb" else "L")
    resized = _resized(picture, how)
    array = np.asarray(resized, dtype=np.uint8)
    array = array[:, :, None] if array.ndim == 2 else array
    return array if how.crop is None else middle(array, how.crop)


def _resized(picture: Image.Image, how: Preprocessing) -> Image.Image:
    (height, width), method = how.size, filter_of(how.resample)
    if how.resize == "fill":
        same = picture.size == (width, height)
        return picture if same else ImageOps.fit(picture, (width, height), method)
    if how.resize == "share":
        picture = _middle_square(picture, how.share)
    elif how.resize == "short":
        height, width = short_side(picture.size, min(how.size))
    return picture if picture.size == (width, height) else picture.resize((width, height), method)


def filter_of(name: Resample) -> Image.Resampling:
    """Pillow's filter of that name.

    >>> filter_of("bicubic") == Image.Resampling.BICUBIC
    True
    """
    return Image.Resampling(RESAMPLES.index(name))


def short_side(size: tuple[int, int], short: int) -> Side:
    """``(height, width)`` when the shorter side of ``(width, height)`` becomes ``short``; rounded down.

    >>> short_side((300, 200), 100)
    (100, 150)
    """
    width, height = size
    if width <= height:
        return max(1, int(short * height / width)), short
    return short, max(1, int(short * width / height))


def _middle_square(picture: Image.Image, share: float) -> Image.Image:
    """As TensorFlow's models cut it: whole pixels, the one that cannot be halved left at the top and left."""
    width, height = picture.size
    side = max(1, int(share * min(width, height)))
    left, top = (width - side + 1) // 2, (height - side + 1) // 2
    return picture.crop((left, top, left + side, top + side))


def middle(array: NDArray[np.uint8], crop: Side) -> NDArray[np.uint8]:
    """The middle of an array (height, width, channels); zeros where it is smaller.

    >>> middle(np.ones((1, 3, 1), np.uint8), (2, 2))[:, :, 0].tolist()
    [[0, 0], [1, 1]]
    """
    height, width = crop
    top, left = (array.shape[0] - height) // 2, (array.shape[1] - width) // 2
    inside = array[max(0, top) : top + height, max(0, left) : left + width]
    if inside.shape[:2] == crop:
        return inside
    out = np.zeros((height, width, array.shape[2]), np.uint8)
    down, right = max(0, -top), max(0, -left)
    out[down : down + inside.shape[0], right : right + inside.shape[1]] = inside
    return out
