"""Is it what the catalogue says? Checksums, counts, pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import PIL

from innerloop.core.errors import UserError
from innerloop.data.archives import Archive
from innerloop.data.catalogue import UNKNOWN, Entry
from innerloop.data.hashing import file_hash
from innerloop.data.layouts import Layout
from innerloop.data.stored import Origin

AS_PUBLISHED: Final = "as published"
REPACKED: Final = "repacked"
UNCONFIRMED: Final = "unconfirmed"


def origin(archive: Archive, entry: Entry) -> Origin:
    """What was given, and whether its checksum is the published one."""
    known = {published.md5: published for published in entry.archives if published.md5 != UNKNOWN}
    record: Origin = {"file": archive.path.name, "kind": archive.kind}
    if archive.kind == "folder":
        return {**record, "checksum": "a folder has none"}
    record["bytes"] = archive.path.stat().st_size
    if not known:
        return {**record, "sha256": file_hash(archive.path), "checksum": "none published that we know of"}
    md5 = file_hash(archive.path, "md5")
    match = known.get(md5)
    return {
        **record,
        "md5": md5,
        "checksum": f"as {match.md5_source} states it" if match else "differs from the published one",
        "published": match is not None,
    }


def status(entry: Entry, given: Sequence[Origin]) -> str:
    """How sure we are: the publisher's own bytes, the right content in other bytes, or only the counts."""
    if given and all(record.get("published") for record in given):
        return AS_PUBLISHED
    return UNCONFIRMED if entry.content_sha256 == UNKNOWN else REPACKED


def check_counts(entry: Entry, layout: Layout, given: str) -> None:
    """Refuse the wrong numbers of classes or pictures."""
    classes, images = len(layout.class_names), sum(layout.counts)
    if (classes, images) != (entry.classes, entry.images):
        raise UserError(
            f"{given} holds {images:,} pictures of {classes} classes, and {entry.name} has {entry.images:,} "
            f"of {entry.classes}: it is incomplete or something else."
        )
    wrong = [c for c, count in enumerate(layout.counts) if entry.per_class not in (None, count)]
    if wrong:
        raise UserError(
            f"{given} has {layout.counts[wrong[0]]} pictures of class '{layout.class_names[wrong[0]]}', and "
            f"{entry.name} has {entry.per_class}: it is not the published dataset."
        )


def check_content(entry: Entry, content: str, decoded: str | None, given: str) -> None:
    """Refuse the wrong pixels, where the right ones are known."""
    if decoded is not None and entry.decoded_sha256 not in (UNKNOWN, None, decoded):
        raise UserError(
            f"{given} was refused: its pictures are not {entry.name}'s (sha256 over the decoded pixels is "
            f"{decoded[:12]}…, and should be {str(entry.decoded_sha256)[:12]}…)."
        )
    if entry.content_sha256 in (UNKNOWN, content):
        return
    if decoded is not None and decoded == entry.decoded_sha256:
        raise UserError(
            f"{given} holds the right pictures, but Pillow {PIL.__version__} resizes them differently from "
            "the recorded result, so numbers would not compare: install another version of Pillow."
        )
    raise UserError(
        f"{given} was refused: its pictures are not {entry.name}'s (sha256 over the pixels is {content[:12]}…"
        f", and should be {entry.content_sha256[:12]}…)."
    )
