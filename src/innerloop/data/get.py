"""Fetch or adopt a dataset of the catalogue, and look after it."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlparse

import PIL

from innerloop._version import __version__
from innerloop.core.errors import UserError, did_you_mean
from innerloop.data.archives import Archive
from innerloop.data.arrays import npz_layout
from innerloop.data.catalogue import (
    EMBEDDED,
    UNKNOWN,
    CatalogueEntry,
    ClassList,
    catalogue,
    class_list,
    find_entry,
)
from innerloop.data.folder import FolderOptions, folder_layout
from innerloop.data.folder_tree import scan
from innerloop.data.hashing import content_hash, file_hash
from innerloop.data.layouts import read_layout
from innerloop.data.layouts.layout import Layout, where
from innerloop.data.listing import GetResult, LocalDataset, Origin
from innerloop.data.paths import data_folder, is_name
from innerloop.data.pictures import Progress, silent
from innerloop.data.source import map_array
from innerloop.data.store import IMAGES, Index, build_store, read_index, workspace

OWN = "your own"


def get(
    name: str,
    archives: Sequence[Path] = (),
    *,
    again: bool = False,
    options: FolderOptions | None = None,
    progress: Progress = silent,
) -> GetResult:
    """Make a dataset ready: download the publisher's archives, or adopt local ones."""
    if name == EMBEDDED:
        return GetResult(_embedded(), already=True)
    entry = catalogue().get(name)
    folder = data_folder() / (entry.store if entry else name)
    index = None if again or not is_name(name) else read_index(folder)
    if index is not None:
        return GetResult(summary(name, index, folder), already=True)
    if entry is None:
        index = _adopt_own(name, archives, folder, options or FolderOptions(), progress)
    elif archives:
        index = adopt(entry, class_list(entry.class_list), archives, folder, progress)
    else:
        index = _fetch(entry, folder, progress)
    return GetResult(summary(name, index, folder), already=False)


def adopt(
    entry: CatalogueEntry,
    classes: ClassList,
    paths: Sequence[Path],
    folder: Path,
    progress: Progress = silent,
) -> Index:
    """Convert local archives into a store at ``folder``, if they hold what the catalogue says."""
    archives = [Archive(path) for path in paths]
    given = [origin(archive, entry) for archive in archives]
    layout = read_layout(entry.layout, archives, classes)
    check_counts(entry, layout, where(archives))

    def verify(content: str, decoded: str | None) -> Index:
        """Refuses pixels that are not those of the catalogue; gives what the index says of their origin."""
        check_content(entry, content, decoded, where(archives))
        return {"status": status(entry, given, content)}

    facts = {"name": entry.store, "licence": entry.licence, "publisher": entry.publisher, "origin": given}
    return build_store(folder, layout, facts, verify, progress, replace=True)


def check(name: str) -> LocalDataset:
    """Read every pixel again and compare with the index and the catalogue."""
    if name == EMBEDDED:
        return _embedded()
    entry = catalogue().get(name)
    folder = data_folder() / (entry.store if entry else name)
    index = read_index(folder) if is_name(name) else None
    if index is None:
        raise UserError(how_to_get(entry or find_entry(name)))
    digest = _stored_hash(folder)
    if digest != index["content_sha256"]:
        raise UserError(
            f"{name} has changed on disk (its pixels hash to {digest[:12]}…, not to "
            f"{index['content_sha256'][:12]}…): `innerloop data get {name} --again` rebuilds it."
        )
    if entry is not None and entry.content_published and entry.content_sha256 != digest:
        raise UserError(
            f"{name} is whole but not what the catalogue says: "
            f"`innerloop data get {name} --again` rebuilds it."
        )
    return summary(name, index, folder)


def summary(name: str, index: Index, folder: Path) -> LocalDataset:
    """What the command says about a dataset that is there."""
    entry = catalogue().get(name)
    return LocalDataset(
        name,
        classes=len(index["class_names"]),
        images=index["images"],
        shape=index["shape"],
        content_sha256=index["content_sha256"],
        content_known=entry is not None and entry.content_sha256 == index["content_sha256"],
        status=index.get("status", OWN),
        origin=index.get("origin", []),
        licence=entry.licence if entry else "not known to innerloop",
        folder=str(folder),
    )


def how_to_get(entry: CatalogueEntry) -> str:
    """The sentence for a dataset that is not there."""
    given = " ".join(f"--from {archive.file}" for archive in entry.archives) or "--from FILES"
    adopt_it = f"`innerloop data get {entry.name} {given}` adopts your copy"
    if not entry.archives:
        return (
            f"{entry.name} is not on this machine, and ImageNet's terms forbid offering a download: find "
            f"{entry.obtain}; then {adopt_it}."
        )
    return (
        f"{entry.name} is not on this machine: `innerloop data get {entry.name}` downloads it "
        f"(licence: {entry.licence}), and {adopt_it}."
    )


def _embedded() -> LocalDataset:
    from innerloop.data.glyphs import glyphs

    source = glyphs()
    return LocalDataset(
        EMBEDDED,
        classes=source.n_classes,
        images=len(source.images),
        shape=list(source.images.shape[1:]),
        content_sha256=source.content_sha256,
        content_known=True,
        status="embedded",
        origin=[],
        licence="that of innerloop",
        folder=None,
    )


def _adopt_own(
    name: str, paths: Sequence[Path], folder: Path, options: FolderOptions, progress: Progress
) -> Index:
    usable = [path for path in paths if path.is_dir() or path.suffix.lower() == ".npz"]
    if not is_name(name) or name == EMBEDDED or len(usable) != 1 or len(paths) != 1:
        known = ", ".join(catalogue())
        raise UserError(
            f"no dataset is called '{name}'{did_you_mean(name, catalogue())}: the catalogue has {known}; "
            "--from gives a new name to one folder of class folders or one .npz file."
        )
    path = usable[0]
    layout = folder_layout(path, scan(path), options) if path.is_dir() else npz_layout(path)
    given: Origin = {"file": path.name, "kind": "folder" if path.is_dir() else "file"}
    facts = {"name": name, "origin": [given]}
    return build_store(folder, layout, facts, progress=progress, replace=True)


def _fetch(entry: CatalogueEntry, folder: Path, progress: Progress) -> Index:
    if not entry.archives:
        raise UserError(how_to_get(entry))
    given = " ".join(f"--from {archive.file}" for archive in entry.archives)
    with workspace(folder) as work:
        paths = []
        for archive in entry.archives:
            target = work / archive.file
            adopt_it = f"`innerloop data get {entry.name} {given}`"
            alternative = f"fetch {archive.url} by other means and adopt it with {adopt_it}"
            download(str(archive.url), target, alternative, progress)
            paths.append(target)
        return adopt(entry, class_list(entry.class_list), paths, folder, progress)


def _stored_hash(folder: Path) -> str:
    try:
        return content_hash(map_array(folder / IMAGES))
    except (OSError, ValueError):
        raise UserError(f"{folder / IMAGES} is damaged: get it again with --again.") from None


TIMEOUT: Final = 30.0  # seconds without a byte
_BLOCK: Final = 1 << 18


def download(url: str, target: Path, alternative: str, progress: Progress) -> None:
    """Fetch ``url`` into ``target``."""
    name = urlparse(url).path.rpartition("/")[2]
    request = urllib.request.Request(url, headers={"User-Agent": f"innerloop/{__version__}"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer, target.open("wb") as file:
            total = int(answer.headers.get("Content-Length") or 0)
            done = 0
            while block := answer.read(_BLOCK):
                done += file.write(block)
                progress(f"downloading {name}", done, total)
        if total and done != total:
            raise UserError(f"{name} broke off after {done:,} of {total:,} bytes; {alternative}.")
    except urllib.error.HTTPError as error:
        raise UserError(f"{urlparse(url).netloc} answered {error.code} for {name}; {alternative}.") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UserError(f"{name} could not be downloaded ({reason}); {alternative}.") from None


AS_PUBLISHED: Final = "as published"
REPACKED: Final = "repacked"
UNCONFIRMED: Final = "unconfirmed"
KNOWN_COPY: Final = "known copy"
OTHER_COPY: Final = "another copy"


def origin(archive: Archive, entry: CatalogueEntry) -> Origin:
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


def status(entry: CatalogueEntry, given: Sequence[Origin], content: str) -> str:
    """How sure we are: the publisher's own bytes, the right content in other bytes, or only the counts."""
    if given and all(record.get("published") for record in given):
        return AS_PUBLISHED
    if entry.content_sha256 == UNKNOWN:
        return UNCONFIRMED
    if entry.content_published:
        return REPACKED
    return KNOWN_COPY if entry.content_sha256 == content else OTHER_COPY


def check_counts(entry: CatalogueEntry, layout: Layout, given: str) -> None:
    """Refuse the wrong numbers of classes or pictures."""
    classes, images = len(layout.class_names), sum(layout.counts)
    wrong = [c for c, count in enumerate(layout.counts) if entry.per_class not in (None, count)]
    if wrong:
        many = f" (and {len(wrong) - 1} other classes)" if len(wrong) > 1 else ""
        what = f"{layout.counts[wrong[0]]} pictures of class '{layout.class_names[wrong[0]]}'{many}"
        right = f"{entry.per_class} of each class"
    elif (classes, images) != (entry.classes, entry.images):
        what, right = f"{images:,} pictures of {classes} classes", f"{entry.images:,} of {entry.classes}"
    else:
        return
    raise UserError(
        f"{given} holds {what}, and {entry.name} has {right}: it is incomplete or something else; give a "
        "whole copy with --from."
    )


def check_content(entry: CatalogueEntry, content: str, decoded: str | None, given: str) -> None:
    """Refuse the wrong pixels, where the right ones are known."""
    if decoded is not None and entry.decoded_sha256 not in (UNKNOWN, None, decoded):
        raise UserError(
            f"{given} was refused: its pictures are not {entry.name}'s (sha256 over the decoded pixels is "
            f"{decoded[:12]}…, and should be {str(entry.decoded_sha256)[:12]}…)."
        )
    if not entry.content_published or entry.content_sha256 == content:
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
