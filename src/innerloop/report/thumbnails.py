"""Small pictures for a page, as text; as many as there is room for."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from pathlib import Path

from PIL import Image, ImageOps

from innerloop.data.layouts.layout import cores
from innerloop.data.pictures import FORMATS, flatten, in_threads
from innerloop.data.preparing import read_bytes

SIDE = 128
"""Pixels of the longer side."""
_QUALITY = 78


def thumbnails(files: Iterable[Path], room: int) -> list[str]:
    """The first pictures, as many as ``room`` characters hold; empty text for one that cannot be shown."""
    made: list[str] = []
    for text in in_threads(thumbnail, files, cores()):
        room -= len(text)
        if room < 0:
            break
        made.append(text)
    return made


def thumbnail(file: Path) -> str:
    """A picture in base64, a JPEG with sides of at most :data:`SIDE`; empty if it cannot be read."""
    try:
        with Image.open(io.BytesIO(read_bytes(file)), formats=FORMATS) as picture:
            picture.draft(None, (2 * SIDE, 2 * SIDE))  # a large JPEG need not be decoded whole
            picture.load()
            small = flatten(ImageOps.exif_transpose(picture))
        small.thumbnail((SIDE, SIDE))
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=_QUALITY)
    except Exception:  # it was read before; whatever has become of it, the page goes on
        return ""
    return base64.b64encode(buffer.getvalue()).decode("ascii")
