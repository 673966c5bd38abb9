"""Photographs at mini-ImageNet's 84 pixels, from Tiny-ImageNet's, where mini-ImageNet is not available."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

import numpy as np

from innerloop.core.errors import UserError
from innerloop.data.arrays import from_arrays
from innerloop.data.source import ImageSource

TINY = "tiny-imagenet"
SIDE = 84
CLASSES, EACH = 15, 8
FILE = "tiny_imagenet_60.npz"


def packed() -> Path:
    """The file of photographs: ``INNERLOOP_TINY_IMAGENET``, or in the folder ``INNERLOOP_TEST_DATA``."""
    folder = os.environ.get("INNERLOOP_TEST_DATA")
    given = os.environ.get("INNERLOOP_TINY_IMAGENET") or (f"{folder}/{FILE}" if folder else None)
    if given is None or not Path(given).is_file():
        raise UserError(
            "there are no Tiny-ImageNet photographs: set INNERLOOP_TINY_IMAGENET to an .npz of jpeg (bytes), "
            "offsets and labels."
        )
    return Path(given)


def photographs(classes: int = CLASSES, each: int = EACH) -> ImageSource:
    """A few classes of Tiny-ImageNet, enlarged to 84 pixels, a third of them for each split."""
    from PIL import Image

    with np.load(packed()) as table:
        jpeg, offsets, labels = (table[name] for name in ("jpeg", "offsets", "labels"))
    pictures, names = [], []
    for number in np.unique(labels)[:classes]:
        for row in np.flatnonzero(labels == number)[:each]:
            data = io.BytesIO(jpeg[offsets[row] : offsets[row + 1]].tobytes())
            picture = Image.open(data, formats=["JPEG"]).convert("RGB")
            pictures.append(np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR)))
            names.append(f"class{number:03d}")
    order = sorted(set(names))
    third = len(order) // 3
    splits = {"train": order[: -2 * third], "validation": order[-2 * third : -third], "test": order[-third:]}
    return from_arrays(np.stack(pictures), names, splits=splits, name=TINY)


def fingerprint() -> str:
    """What tells one file of photographs from another."""
    with packed().open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
