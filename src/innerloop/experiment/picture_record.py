"""What a run keeps of its pictures, ``data.json``: a folder that grows would be divided anew without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innerloop.core.errors import UserError
from innerloop.core.files import read_json, write_json_atomic
from innerloop.core.paths import user_path
from innerloop.data.catalogue import EMBEDDED, catalogue
from innerloop.data.hashing import content_hash, text_hash
from innerloop.data.source import ImageSource

KEPT = "data.json"
FORMAT = "innerloop pictures 1"
_SHOWN = 4


class Changes(NamedTuple):
    """How pictures differ from a record."""

    added: list[str]
    gone: dict[str, list[str]]
    altered: dict[str, list[tuple[str, int, int]]]


def class_hashes(source: ImageSource, classes: Sequence[int] | NDArray[np.int64]) -> dict[str, str]:
    """A hash of the pixels of each class, by its name."""
    starts = source.starts
    return {source.class_names[c]: content_hash(source.images[starts[c] : starts[c + 1]]) for c in classes}


def is_own(name: str) -> bool:
    """Whether pictures are the user's own; those of the catalogue are checked when they are adopted."""
    return name != EMBEDDED and name not in catalogue()


def own_folder(name: str) -> Path | None:
    """The folder of picture files that ``data.name`` means; None where pictures come from elsewhere."""
    from innerloop.data.opening import own_store

    folder = user_path(name)
    return folder if is_own(name) and own_store(name) is None and folder.is_dir() else None


def keep(file: Path, source: ImageSource, name: str, scale: tuple[Any, Any]) -> None:
    """Writes the record of a run's pictures."""
    hashes = class_hashes(source, range(source.n_classes)) if is_own(name) else {}
    counts = dict(zip(source.class_names, source.counts.tolist(), strict=True))
    record = {
        "format": FORMAT,
        "name": name,
        "content_sha256": source.content_sha256,
        "splits": {part: [source.class_names[c] for c in numbers] for part, numbers in source.splits.items()},
        "pictures": counts,
        "sha256": hashes,
        "mean": scale[0],
        "std": scale[1],
    }
    write_json_atomic(file, record)


def read_kept(file: str | Path | None) -> dict[str, Any] | None:
    """The record in a file; None where there is no file, or another one (such as a split file)."""
    if file is None or Path(file).name != KEPT or not Path(file).is_file():
        return None
    try:
        record = read_json(Path(file))
    except ValueError as error:
        raise UserError(f"{error}; without it nobody knows which classes were trained on.") from None
    return record if isinstance(record, dict) and record.get("format") == FORMAT else None


def with_kept_splits(source: ImageSource, record: Mapping[str, Any]) -> ImageSource:
    """The source divided as the record says; new classes are in no part, and lost ones are left out."""
    number = {name: c for c, name in enumerate(source.class_names)}
    splits = {
        part: np.array([number[name] for name in names if name in number], dtype=np.int64)
        for part, names in record["splits"].items()
    }
    return source._replace(splits=splits)


def changes(record: Mapping[str, Any], source: ImageSource) -> Changes:
    """What is no longer as it was. The pixels of single classes are only looked at if something differs."""
    counts = dict(zip(source.class_names, source.counts.tolist(), strict=True))
    then: dict[str, int] = record["pictures"]
    if source.content_sha256 == record["content_sha256"] and counts == then:
        return Changes([], {}, {})
    number = {name: c for c, name in enumerate(source.class_names)}
    gone: dict[str, list[str]] = {}
    altered: dict[str, list[tuple[str, int, int]]] = {}
    for part, names in record["splits"].items():
        there = [name for name in names if name in number]
        if lost := [name for name in names if name not in number]:
            gone[part] = lost
        now = class_hashes(source, [number[name] for name in there]) if record["sha256"] else {}
        others = [name for name in there if not now or now[name] != record["sha256"].get(name)]
        if others:
            altered[part] = [(name, then[name], counts[name]) for name in others]
    return Changes([name for name in source.class_names if name not in then], gone, altered)


def refuse(changes: Changes, parts: Sequence[str], run: Path) -> None:
    """Refuses pictures of which one of these splits has changed."""
    told = []
    for part in parts:
        if part in changes.gone:
            told.append(f"the {part} split has lost {_some([repr(n) for n in changes.gone[part]])}")
        if part in changes.altered:
            words = [
                f"'{name}' ({then} pictures then, {now} now)"
                if then != now
                else f"'{name}' ({now} pictures, not the same)"
                for name, then, now in changes.altered[part]
            ]
            told.append(f"the {part} split has other pictures in {_some(words)}")
    if told:
        raise UserError(
            f"the pictures of {run} changed since it was trained: {'; '.join(told)}: put them back as they "
            "were, or choose other classes with data.split_file (which makes it another test)."
        )


def remark(changes: Changes) -> str | None:
    """What to say of changes that do not matter to the test."""
    told = []
    if changes.added:
        told.append(f"{len(changes.added)} classes are new ({_some([repr(n) for n in changes.added])})")
    for part in dict.fromkeys([*changes.gone, *changes.altered]):
        names = [*changes.gone.get(part, ()), *(name for name, *_ in changes.altered.get(part, ()))]
        told.append(f"{len(names)} classes of the {part} split are gone or hold other pictures")
    if not told:
        return None
    return (
        f"since the training, {' and '.join(told)}: the split that the run kept is used, without new classes."
    )


def digest(source: ImageSource, part: str, name: str) -> str:
    """Twelve digits that stand for the classes of a split and their pictures."""
    classes = source.splits[part]
    if is_own(name):
        return text_hash(*(text for pair in class_hashes(source, classes).items() for text in pair))[:12]
    return text_hash(source.content_sha256, *(source.class_names[c] for c in classes))[:12]


def _some(words: Sequence[str]) -> str:
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return ", ".join(words[:_SHOWN]) + more
