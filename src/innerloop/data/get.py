"""Fetch or adopt a dataset of the catalogue, and look after it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import PIL

from innerloop.core.errors import UserError
from innerloop.data.archives import Archive
from innerloop.data.catalogue import UNKNOWN, Classes, Entry, class_list, find_entry
from innerloop.data.download import download
from innerloop.data.hashing import content_hash, file_hash
from innerloop.data.layouts import LAYOUTS, Layout, Progress
from innerloop.data.layouts.layout import silent, where
from innerloop.data.place import data_folder
from innerloop.data.source import map_array
from innerloop.data.store import IMAGES, Index, build_store, read_index

AS_PUBLISHED, REPACKED, UNCONFIRMED = "as published", "repacked", "unconfirmed"


def get(
    name: str, archives: Sequence[Path] = (), *, again: bool = False, progress: Progress = silent
) -> dict[str, Any]:
    """Make a dataset ready: download the publisher's archives, or adopt local ones.

    Args:
        name: in the catalogue.
        archives: local archives, files or folders to adopt; downloads when there are none.
        again: also when it is there already.
        progress: told how far it is.

    Returns:
        name, classes, images, content_sha256, status, folder, and ``already`` when nothing was to be done.

    Raises:
        UserError: it cannot be had, or is not what it should be.
    """
    entry = find_entry(name)
    folder = data_folder() / entry.store
    index = None if again else read_index(folder)
    if index is not None:
        return {**summary(entry, index, folder), "already": True}
    if archives:
        index = adopt(entry, class_list(entry.class_list), archives, folder, progress)
    else:
        index = _fetch(entry, folder, progress)
    return {**summary(entry, index, folder), "already": False}


def adopt(
    entry: Entry, classes: Classes, paths: Sequence[Path], folder: Path, progress: Progress = silent
) -> Index:
    """Convert local archives into a store at ``folder``, if they hold what the catalogue says.

    Raises:
        UserError: they do not, in one sentence.
    """
    archives = [Archive(path) for path in paths]
    origin = [_origin(archive, entry) for archive in archives]
    layout = LAYOUTS[entry.layout](archives, classes)
    _check_counts(entry, layout, where(archives))

    def verify(content: str, decoded: str | None) -> dict[str, Any]:
        _check_content(entry, content, decoded, where(archives))
        return {"status": _status(entry, origin)}

    facts = {"name": entry.store, "licence": entry.licence, "publisher": entry.publisher, "origin": origin}
    return build_store(folder, layout, facts, verify, progress, replace=True)


def check(name: str) -> dict[str, Any]:
    """Read every pixel again and compare with the index and the catalogue.

    Raises:
        UserError: something changed, or it is not there.
    """
    entry = find_entry(name)
    folder = data_folder() / entry.store
    index = read_index(folder)
    if index is None:
        raise UserError(how_to_get(entry))
    found = _stored_hash(folder)
    if found != index["content_sha256"]:
        raise UserError(
            f"{name} has changed on disk (its pixels hash to {found[:12]}…, not to "
            f"{index['content_sha256'][:12]}…): `innerloop data get {name} --again` makes it anew."
        )
    if entry.content_sha256 not in (UNKNOWN, found):
        raise UserError(
            f"{name} is whole but not what the catalogue says: "
            f"`innerloop data get {name} --again` makes it anew."
        )
    return {**summary(entry, index, folder), "ok": True}


def summary(entry: Entry, index: Index, folder: Path) -> dict[str, Any]:
    """What the command says about a dataset that is there."""
    return {
        "name": entry.name,
        "classes": len(index["class_names"]),
        "images": index["images"],
        "shape": index["shape"],
        "content_sha256": index["content_sha256"],
        "content_known": entry.content_sha256 != UNKNOWN,
        "status": index.get("status"),
        "origin": index.get("origin", []),
        "licence": entry.licence,
        "folder": str(folder),
    }


def how_to_get(entry: Entry) -> str:
    """The sentence for a dataset that is not there."""
    given = " ".join(f"--from {archive.file}" for archive in entry.archives) or "--from FILES"
    adopt_it = f"`innerloop data get {entry.name} {given}` adopts your copy"
    if not entry.archives:
        return f"{entry.name} is not on this machine: {entry.obtain}; then {adopt_it}."
    return (
        f"{entry.name} is not on this machine: `innerloop data get {entry.name}` downloads it "
        f"(licence: {entry.licence}), and {adopt_it}."
    )


def _fetch(entry: Entry, folder: Path, progress: Progress) -> Index:
    if not entry.archives:
        raise UserError(how_to_get(entry))
    given = " ".join(f"--from {archive.file}" for archive in entry.archives)
    with tempfile.TemporaryDirectory(prefix="innerloop-download-") as work:
        paths = []
        for archive in entry.archives:
            target = Path(work) / archive.file
            alternative = f"fetch {archive.url} by other means, then `innerloop data get {entry.name} {given}` adopts it"
            download(str(archive.url), target, alternative, progress)
            paths.append(target)
        return adopt(entry, class_list(entry.class_list), paths, folder, progress)


def _origin(archive: Archive, entry: Entry) -> dict[str, Any]:
    """What was given, and whether its checksum is the published one."""
    known = {published.md5: published for published in entry.archives if published.md5 != UNKNOWN}
    record: dict[str, Any] = {"file": archive.path.name, "kind": archive.kind}
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


def _status(entry: Entry, origin: Sequence[dict[str, Any]]) -> str:
    if all(record.get("published") for record in origin):
        return AS_PUBLISHED
    return UNCONFIRMED if entry.content_sha256 == UNKNOWN else REPACKED


def _check_counts(entry: Entry, layout: Layout, given: str) -> None:
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


def _check_content(entry: Entry, content: str, decoded: str | None, given: str) -> None:
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


def _stored_hash(folder: Path) -> str:
    try:
        return content_hash(map_array(folder / IMAGES))
    except (OSError, ValueError):
        raise UserError(f"{folder / IMAGES} is damaged: get it again with --again.") from None
