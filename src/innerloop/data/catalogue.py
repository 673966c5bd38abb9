"""The datasets that are known by name: where they come from, what they must contain, how they are split."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innerloop.core.errors import UserError, did_you_mean

UNKNOWN = "unknown"
EMBEDDED = "glyphs"


class PublishedArchive(NamedTuple):
    """One archive as its publisher names it; ``md5`` is "unknown" where nobody told us."""

    file: str
    url: str | None
    md5: str
    md5_source: str


class CatalogueEntry(NamedTuple):
    """A row of the catalogue."""

    name: str
    title: str
    store: str
    layout: str
    publisher: str
    page: str
    licence: str
    archives: tuple[PublishedArchive, ...]
    obtain: str
    classes: int
    images: int
    per_class: int | None
    shape: tuple[int, int, int]
    content_sha256: str
    decoded_sha256: str | None
    class_list: str
    split: str | None

    @property
    def content_published(self) -> bool:
        """Whether there is one right hash; where no archive is published, it is that of one copy."""
        return self.content_sha256 != UNKNOWN and bool(self.archives)


class ClassList(NamedTuple):
    """Class names in catalogue order, their groups, and the published splits by name."""

    names: tuple[str, ...]
    groups: tuple[int, ...] | None
    group_names: tuple[str, ...]
    splits: dict[str, dict[str, tuple[str, ...]]]
    sources: dict[str, str]


@cache
def catalogue() -> dict[str, CatalogueEntry]:
    """Every dataset that can be fetched or adopted by name: those of the files in ``shipped``."""
    rows = {
        name: {**row, "class_list": Path(file.name).stem}
        for file in files("innerloop.data").joinpath("shipped").iterdir()
        for name, row in json.loads(file.read_text(encoding="utf-8"))["datasets"].items()
    }
    for row in rows.values():
        row["archives"] = tuple(PublishedArchive(**archive) for archive in row["archives"])
        row["shape"] = tuple(row["shape"])
    return {name: CatalogueEntry(name=name, **row) for name, row in sorted(rows.items())}


def find_entry(name: str) -> CatalogueEntry:
    """The row of a dataset."""
    known = catalogue()
    if name not in known:
        raise UserError(
            f"no dataset is called '{name}'{did_you_mean(name, known)}: the catalogue has {', '.join(known)}."
        )
    return known[name]


@cache
def class_list(name: str) -> ClassList:
    """Classes and splits as published."""
    file = files("innerloop.data").joinpath("shipped", f"{name}.json")
    table: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return ClassList(
        tuple(table["classes"]),
        tuple(table["groups"]) if table.get("groups") else None,
        tuple(table.get("group_names", ())),
        {
            split: {part: tuple(names) for part, names in parts.items()}
            for split, parts in table["splits"].items()
        },
        dict(table["sources"]),
    )


def published_splits(entry: CatalogueEntry, which: str | None = None) -> dict[str, NDArray[np.int64]]:
    """Class numbers of every part of a split; all classes as one part where the dataset has no split."""
    classes = class_list(entry.class_list)
    split = which or entry.split
    if split is None:
        return {"all": np.arange(entry.classes)}
    if split not in classes.splits:
        known = ", ".join(classes.splits)
        raise UserError(
            f"{entry.name} has no published split '{split}'{did_you_mean(split, classes.splits)}: {known}."
        )
    number = {name: i for i, name in enumerate(classes.names)}
    return {
        part: np.array(sorted(number[name] for name in names), dtype=np.int64)
        for part, names in classes.splits[split].items()
    }
