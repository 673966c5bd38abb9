"""What there is to say of a dataset that is on this machine."""

from __future__ import annotations

from typing import Any, NamedTuple, Required, TypedDict


class Origin(TypedDict, total=False):
    """An archive or folder that a dataset was made from, as its index keeps it: a key may be missing.

    Attributes:
        file: its name.
        kind: what it is.
        bytes: of the file.
        sha256: of the file, where no checksum is published.
        md5: of the file, where one is.
        checksum: how it compares, in words.
        published: whether it is the published one.
    """

    file: Required[str]
    kind: Required[str]
    bytes: int
    sha256: str
    md5: str
    checksum: str
    published: bool


class Stored(NamedTuple):
    """A dataset that is here.

    Attributes:
        name: of it.
        classes: how many.
        images: how many.
        shape: height, width and channels of a picture.
        content_sha256: over all pixels.
        content_known: whether the catalogue says what that should be.
        status: how sure it is that this is the published dataset.
        origin: what it was made from.
        licence: as stated by its source.
        folder: where it is; None for the embedded one.
    """

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


class Got(NamedTuple):
    """A dataset that was asked for, and whether it was here already."""

    stored: Stored
    already: bool

    def as_dict(self) -> dict[str, Any]:
        """As plain data, in one table."""
        return {**self.stored._asdict(), "already": self.already}
