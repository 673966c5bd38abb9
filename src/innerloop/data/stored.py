"""What there is to say of a dataset that is on this machine."""

from __future__ import annotations

from typing import Any, NamedTuple, Required, TypedDict


class Origin(TypedDict, total=False):
    """An archive or folder that a dataset was made from, as its index keeps it: a key may be missing."""

    file: Required[str]
    kind: Required[str]
    bytes: int
    sha256: str
    md5: str
    checksum: str
    published: bool


class Stored(NamedTuple):
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


class Got(NamedTuple):
    """A dataset that was asked for, and whether it was here already."""

    stored: Stored
    already: bool

    def as_dict(self) -> dict[str, Any]:
        """As plain data, in one table."""
        return {**self.stored._asdict(), "already": self.already}
