"""Look at a dataset: counts, and a sheet of its pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from innerloop.data.source import ImageSource

PER_SPLIT: Final = 8  # classes of each split on a sheet
COLUMNS: Final = 10  # pictures of each class
_CELL: Final = 56  # smallest side of a picture on the sheet
_GAP: Final = 2
_TEXT: Final = 190  # width of the class names
_LINE: Final = 22  # height of a split's name


class SplitCounts(NamedTuple):
    """One split: its classes, its pictures, and how many the smallest and the largest class have."""

    split: str
    classes: int
    images: int
    smallest: int
    largest: int


class Description(NamedTuple):
    """What a dataset holds.

    Attributes:
        name: of it.
        classes: how many.
        images: how many.
        shape: height, width and channels of a picture.
        content_sha256: over all pixels.
        groups: of classes; None if there are none.
        splits: by name, in order.
        per_class: pictures of every class.
    """

    name: str
    classes: int
    images: int
    shape: list[int]
    content_sha256: str
    groups: int | None
    splits: list[SplitCounts]
    per_class: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {**self._asdict(), "splits": [part._asdict() for part in self.splits]}


def describe(source: ImageSource) -> Description:
    """Classes, pictures, and how many each class and split has."""
    counts = source.counts
    return Description(
        source.name,
        classes=source.n_classes,
        images=int(counts.sum()),
        shape=list(source.images.shape[1:]),
        content_sha256=source.content_sha256,
        groups=len(source.group_names) or None,
        splits=[_part(source, part) for part in source.splits],
        per_class={name: int(count) for name, count in zip(source.class_names, counts, strict=True)},
    )


def contact_sheet(source: ImageSource, path: Path) -> Path:
    """Write a PNG with a few classes of every split, one class a row, its first pictures side by side."""
    height, width = source.images.shape[1:3]
    scale = max(1, -(-_CELL // max(height, width)))
    cell_h, cell_w = height * scale + _GAP, width * scale + _GAP
    rows = {part: _spread(classes) for part, classes in source.splits.items() if len(classes)}
    total = sum(_LINE + len(classes) * cell_h for classes in rows.values())
    sheet = Image.new("RGB", (_TEXT + COLUMNS * cell_w, total), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default()
    y = 0
    for part, classes in rows.items():
        title = f"{part}: {len(source.splits[part])} classes"
        draw.text((4, y + 5), title, fill="black", font=font)
        y += _LINE
        for c in classes:
            draw.text((4, y + cell_h // 2 - 6), _short(source.class_names[c]), fill="black", font=font)
            for column, row in enumerate(range(source.starts[c], source.starts[c + 1])[:COLUMNS]):
                sheet.paste(_picture(source, row, scale), (_TEXT + column * cell_w, y))
            y += cell_h
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path)
    return path


def _part(source: ImageSource, part: str) -> SplitCounts:
    counts = source.counts[source.splits[part]]
    ends = (int(counts.min()), int(counts.max())) if len(counts) else (0, 0)
    return SplitCounts(part, len(counts), int(counts.sum()), *ends)


def _spread(classes: Any) -> list[int]:
    """At most eight, evenly through the split."""
    picked = np.linspace(0, len(classes) - 1, min(PER_SPLIT, len(classes))).round().astype(int)
    return [int(classes[i]) for i in picked]


def _picture(source: ImageSource, row: int, scale: int) -> Image.Image:
    array = np.ascontiguousarray(source.images[row])
    picture = Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array).convert("RGB")
    return picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST)


def _short(name: str) -> str:
    """What fits beside the pictures, in the letters the built-in font has."""
    plain = name.encode("ascii", "replace").decode()
    return plain if len(plain) <= 30 else f"...{plain[-27:]}"
