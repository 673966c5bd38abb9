"""The catalogue beside what is on this machine."""

from __future__ import annotations

from typing import Any, NamedTuple

from innerloop.core.errors import UserError
from innerloop.data.catalogue import EMBEDDED, UNKNOWN, Published, catalogue
from innerloop.data.exchange import put_all_back
from innerloop.data.place import data_folder, is_name
from innerloop.data.store import INDEX, read_index

ABSENT = "no"


class Listed(NamedTuple):
    """A dataset of the catalogue, or one that is here.

    Attributes:
        name: what the user types.
        classes: how many.
        images: how many.
        content_sha256: over all pixels, or "unknown"; None for the embedded one.
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


def list_datasets() -> list[Listed]:
    """Every dataset of the catalogue, the embedded one, and those of the user's own that are stored."""
    rows = []
    for name, entry in catalogue().items():
        here = _status(entry.store)
        rows.append(
            Listed(
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


def _checksum(archive: Published) -> str:
    if archive.md5 == UNKNOWN:
        return UNKNOWN
    return f"md5 {archive.md5} (as {archive.md5_source} states it)"


def _status(store: str) -> str:
    try:
        index = read_index(data_folder() / store)
    except UserError:
        return "damaged"
    return ABSENT if index is None else str(index.get("status", "your own"))


def _embedded() -> Listed:
    from innerloop.data.glyphs import ALPHABETS, CHARACTERS, DRAWINGS

    return Listed(
        EMBEDDED,
        classes=ALPHABETS * CHARACTERS,
        images=ALPHABETS * CHARACTERS * DRAWINGS,
        content_sha256=None,
        here=True,
        status="embedded",
        title="glyphs: handwriting-like alphabets drawn by innerloop itself, no download",
        licence="that of innerloop",
    )


def _own() -> list[Listed]:
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
            Listed(
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
