"""The converted form: ``images.npy`` (mapped, uint8), ``index.json`` and ``files.json`` in one folder.

It is built beside its place and moved there in one step: a store is whole or it is not there.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from innerloop._version import __version__
from innerloop.core.errors import UserError
from innerloop.core.files import plain, read_json, sync_file, sync_folder, write_json_atomic
from innerloop.data.hashing import content_hash
from innerloop.data.layouts.layout import Layout, Progress, silent
from innerloop.data.source import ImageSource, map_array
from innerloop.data.workspace import put_back, take_place, workspace

IMAGES: Final = "images.npy"
INDEX: Final = "index.json"
FILES: Final = "files.json"
FORMAT: Final = 1
_SPARE: Final = 64 << 20  # bytes to leave free on the disk

Index = dict[str, Any]
"""What ``index.json`` holds, or a part of it."""
Verify = Callable[[str, str | None], Index]  # content hash, decoded hash -> what to record


def build_store(
    folder: Path,
    layout: Layout,
    facts: Index,
    verify: Verify | None = None,
    progress: Progress = silent,
    replace: bool = False,
) -> Index:
    """Convert into ``folder``; returns the index that was written."""
    with workspace(folder) as work:
        images = _new_array(work / IMAGES, (sum(layout.counts), *layout.shape))
        decoded = layout.fill(images, progress)
        images.flush()
        content = content_hash(images)
        del images  # a mapped file cannot be moved on Windows
        extra = verify(content, decoded) if verify else {}
        index = {
            "format": FORMAT,
            **facts,
            "images": sum(layout.counts),
            "shape": layout.shape,
            "content_sha256": content,
            "decoded_sha256": decoded,
            **extra,
            "made": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "innerloop": __version__,
            "group_names": layout.group_names,
            "groups": layout.groups,
            "splits": layout.splits,
            "counts": layout.counts,
            "class_names": layout.class_names,
        }
        (work / FILES).write_text(json.dumps(list(layout.files)), encoding="utf-8")
        write_json_atomic(work / INDEX, index)
        sync_file(work / FILES)
        sync_file(work / IMAGES)
        _move(work, folder, replace)
    made: Index = plain(index)
    return made


def read_index(folder: Path) -> Index | None:
    """The index of a store, or None where there is none."""
    put_back(folder)
    if not (folder / INDEX).exists():
        return None
    try:
        index: Index = read_json(folder / INDEX)
        fits = index["format"] == FORMAT and len(index["counts"]) == len(index["class_names"])
    except (ValueError, KeyError, TypeError):
        fits = False
    if not fits:
        raise UserError(f"{folder / INDEX} cannot be used by this version: delete {folder} and get it again.")
    return index


def open_store(folder: Path, name: str, splits: dict[str, NDArray[np.int64]] | None = None) -> ImageSource:
    """Map a store."""
    index = read_index(folder)
    if index is None:
        raise UserError(f"there is no store at {folder}.")
    try:
        images = map_array(folder / IMAGES)
    except (OSError, ValueError):
        raise UserError(f"{folder / IMAGES} is damaged: delete {folder} and get it again.") from None
    if images.shape != (index["images"], *index["shape"]) or images.dtype != np.uint8:
        raise UserError(f"{folder / IMAGES} does not fit its index: delete {folder} and get it again.")
    if splits is None:
        splits = {part: np.array(rows, dtype=np.int64) for part, rows in (index["splits"] or {}).items()}
    return ImageSource(
        name=name,
        images=images,
        starts=np.concatenate([[0], np.cumsum(index["counts"], dtype=np.int64)]),
        class_names=tuple(index["class_names"]),
        splits=splits,
        groups=None if index["groups"] is None else np.array(index["groups"], dtype=np.int64),
        group_names=tuple(index["group_names"]),
        files=StoredFiles(str(folder / FILES)),
        content_sha256=index["content_sha256"],
    )


@dataclass(frozen=True)
class StoredFiles:
    """File names of a store, read when the first is asked for; picklable."""

    path: str

    def __call__(self, row: int) -> str:
        """The name of a row."""
        return _file_names(self.path)[row]


@lru_cache(maxsize=4)
def _file_names(path: str) -> list[str]:
    names: list[str] = read_json(Path(path))
    return names


def _new_array(path: Path, shape: tuple[int, ...]) -> np.memmap[Any, np.dtype[np.uint8]]:
    need, free = int(np.prod(shape, dtype=np.int64)), shutil.disk_usage(path.parent).free
    if need + _SPARE > free:  # writing to a mapped file on a full disk kills the process without a word
        raise UserError(
            f"the converted pictures take {need / 1e9:.1f} GB, and {path.parent.parent} has {free / 1e9:.1f} "
            "GB free: set INNERLOOP_DATA to a larger disk."
        )
    images = open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    if hasattr(os, "posix_fallocate"):  # others may fill the disk meanwhile: what is allocated now is ours
        with path.open("rb+") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return images


def _move(work: Path, folder: Path, replace: bool) -> None:
    if replace:
        take_place(work, folder)
        return
    try:
        work.rename(folder)
    except OSError:
        if read_index(folder) is None:  # somebody else was quicker is fine; anything else is not
            raise
    sync_folder(folder.parent)
