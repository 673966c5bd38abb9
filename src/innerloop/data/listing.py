"""The catalogue beside what is on this machine; counts and a sheet of pictures of a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple, Required, TypedDict

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from innerloop.core.errors import UserError
from innerloop.data.catalogue import EMBEDDED, UNKNOWN, PublishedArchive, catalogue
from innerloop.data.paths import data_folder, is_name
from innerloop.data.source import ImageSource
from innerloop.data.store import INDEX, put_all_back, read_index


class Origin(TypedDict, total=False):
    """An archive or folder that a dataset was made from, as its index keeps it: a key may be missing."""

    file: Required[str]
    kind: Required[str]
    bytes: int
    sha256: str
    md5: str
    checksum: str
    published: bool


class LocalDataset(NamedTuple):
    """A dataset that is here."""

    name: str
    classes: int
    images: int
    shape: list[int]
    content_sha256: str
    content_known: bool
    status: str
    origin: list[Origin]
    licence: str
    folder: str | None


class GetResult(NamedTuple):
    """A dataset that was asked for, and whether it was here already."""

    stored: LocalDataset
    already: bool

    def as_dict(self) -> dict[str, Any]:
        """As plain data, in one table."""
        return {**self.stored._asdict(), "already": self.already}


ABSENT = "no"


class DatasetSummary(NamedTuple):
    """A dataset of the catalogue, or one that is here.

    Attributes:
        name: what the user types.
        classes: how many.
        images: how many.
        content_sha256: over all pixels, or "unknown", as the catalogue has it; None for the embedded one.
        here: whether it is on this machine.
        status: how sure it is that it is the published one.
        title: what people call it.
        licence: as stated by its source.
        publisher: who made it; None outside the catalogue.
        page: where to read about it and its terms; None outside the catalogue.
        checksums: of the publisher's files, in words; None outside the catalogue.
    """

    name: str
    classes: int
    images: int
    content_sha256: str | None
    here: bool
    status: str
    title: str
    licence: str
    publisher: str | None = None
    page: str | None = None
    checksums: dict[str, str] | None = None

    def as_dict(self) -> dict[str, Any]:
        """As plain data; what only the catalogue knows is left out elsewhere."""
        catalogued = ("publisher", "page", "checksums")
        return {k: v for k, v in self._asdict().items() if v is not None or k not in catalogued}


def list_datasets() -> list[DatasetSummary]:
    """Every dataset of the catalogue, the embedded one, and those of the user's own that are stored."""
    rows = []
    for name, entry in catalogue().items():
        here = _status(entry.store)
        rows.append(
            DatasetSummary(
                name,
                classes=entry.classes,
                images=entry.images,
                content_sha256=entry.content_sha256,
                here=here != ABSENT,
                status=here,
                title=entry.title,
                licence=entry.licence,
                publisher=entry.publisher,
                page=entry.page,
                checksums={archive.file: _checksum(archive) for archive in entry.archives},
            )
        )
    return [*rows, _embedded(), *_own()]


def _checksum(archive: PublishedArchive) -> str:
    if archive.md5 == UNKNOWN:
        return UNKNOWN
    return f"md5 {archive.md5} (as {archive.md5_source} states it)"


def _status(store: str) -> str:
    try:
        index = read_index(data_folder() / store)
    except UserError:
        return "damaged"
    return ABSENT if index is None else str(index.get("status", "your own"))


def _embedded() -> DatasetSummary:
    from innerloop.data.glyphs import ALPHABETS, CHARACTERS, DRAWINGS

    return DatasetSummary(
        EMBEDDED,
        classes=ALPHABETS * CHARACTERS,
        images=ALPHABETS * CHARACTERS * DRAWINGS,
        content_sha256=None,
        here=True,
        status="embedded",
        title="glyphs: handwriting-like alphabets drawn by innerloop itself, no download",
        licence="that of innerloop",
    )


def _own() -> list[DatasetSummary]:
    stores = {entry.store for entry in catalogue().values()}
    put_all_back(data_folder())
    rows = []
    for index_file in sorted(data_folder().glob(f"*/{INDEX}")):
        name = index_file.parent.name
        if name in stores or not is_name(name):
            continue
        try:
            index = read_index(index_file.parent) or {}
        except UserError:
            continue
        rows.append(
            DatasetSummary(
                name,
                classes=len(index["class_names"]),
                images=index["images"],
                content_sha256=index["content_sha256"],
                here=True,
                status="your own",
                title=f"from {index['origin'][0]['file']}",
                licence="not known to innerloop",
            )
        )
    return rows


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
