"""Omniglot: images_background.zip and images_evaluation.zip, 105×105 drawings in 1 bit, black on white."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from innerloop.core.errors import UserError
from innerloop.data.archives import Archive
from innerloop.data.catalogue import ClassList
from innerloop.data.layouts.layout import Layout, grouped_rows, where
from innerloop.data.pictures import BadPictureError, Progress, fit_picture, is_picture, open_picture

SIZE: Final = 28
WHITE: Final = 255
DRAWN: Final = 105  # side of the originals


def omniglot(archives: Sequence[Archive], classes: ClassList) -> Layout:
    """Find every drawing; the class is the last two folders: ``<alphabet>/<character>/0709_01.png``."""
    members: dict[str, list[str]] = {name: [] for name in classes.names}
    home: dict[str, Archive] = {}
    for archive in archives:
        for name in filter(is_picture, archive.names):
            label = "/".join(name.split("/")[-3:-1])
            if label in members:
                members[label].append(name)
                home[name] = archive
    missing = [name for name, drawings in members.items() if not drawings]
    if missing:
        raise UserError(
            f"{where(archives)} lacks {len(missing)} of Omniglot's {len(classes.names)} characters, such as "
            f"{missing[0]}: give both, --from images_background.zip --from images_evaluation.zip."
        )
    for drawings in members.values():
        drawings.sort(key=lambda name: name.rpartition("/")[2])
    rows, counts = grouped_rows(members, classes.names)

    def fill(images: NDArray[np.uint8], progress: Progress) -> str:
        """Decodes the drawings into ``images``, and gives the hash of their pixels as decoded."""
        return _fill(images, rows, home, progress)

    return Layout(
        classes.names, tuple(counts), rows, (SIZE, SIZE, 1), fill, classes.groups, classes.group_names
    )


def _fill(
    images: NDArray[np.uint8], rows: Sequence[str], home: dict[str, Archive], progress: Progress
) -> str:
    packed = {
        name: data
        for archive in dict.fromkeys(home.values())
        for name, data in archive.stream([name for name in rows if home[name] is archive])
    }  # 15 MB in all
    decoded = hashlib.sha256()
    for row, name in enumerate(rows):
        paper = _paper(packed[name], name)
        decoded.update((WHITE - np.asarray(paper)).tobytes())
        images[row] = WHITE - fit_picture(paper, SIZE, "grey", "squash")
        progress("converting", row + 1, len(rows))
    return decoded.hexdigest()


def _paper(data: bytes, name: str) -> Image.Image:
    """(105, 105), black ink on white; inverted only after resizing, which decides how halves are rounded."""
    try:
        drawing = open_picture(data)
    except BadPictureError as error:
        raise UserError(f"'{name}' in the archive cannot be read ({error}); get the archive again.") from None
    if drawing.size != (DRAWN, DRAWN):
        raise UserError(f"'{name}' is {drawing.size} in size, not {DRAWN}×{DRAWN}: this is not Omniglot.")
    return drawing
