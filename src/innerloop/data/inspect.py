"""Look at a dataset: counts, and a sheet of its pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from innerloop.data.source import ImageSource

PER_SPLIT: Final = 8  # classes of each split on a sheet
COLUMNS: Final = 10  # pictures of each class
_CELL: Final = 56  # smallest side of a picture on the sheet
_GAP: Final = 2
_TEXT: Final = 190  # width of the class names
_LINE: Final = 22  # height of a split's name


def describe(source: ImageSource) -> dict[str, Any]:
    """Classes, pictures, and how many each class and split has."""
    counts = source.counts
    return {
        "name": source.name,
        "classes": source.n_classes,
        "images": int(counts.sum()),
        "shape": list(source.images.shape[1:]),
        "content_sha256": source.content_sha256,
        "groups": len(source.group_names) or None,
        "splits": [_part(source, part) for part in source.splits],
        "per_class": {name: int(count) for name, count in zip(source.class_names, counts, strict=True)},
    }


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


def _part(source: ImageSource, part: str) -> dict[str, Any]:
    counts = source.counts[source.splits[part]]
    return {
        "split": part,
        "classes": len(counts),
        "images": int(counts.sum()),
        "smallest": int(counts.min()) if len(counts) else 0,
        "largest": int(counts.max()) if len(counts) else 0,
    }


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
