"""What mini- and tiered-ImageNet share when they come as picture files: the class is in the name."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from innerloop.core.errors import UserError
from innerloop.data.archives import Archive
from innerloop.data.catalogue import ClassList
from innerloop.data.layouts.layout import Layout, fill_from, grouped_rows, where
from innerloop.data.pictures import fit_picture, is_picture, open_picture

SIZE: Final = 84
_WNID: Final = re.compile(r"n\d{8}")


def decode_84(data: bytes) -> NDArray[np.uint8]:
    """Any picture as 84×84 RGB; proportions are not kept, as in the published data."""
    return fit_picture(open_picture(data), SIZE, "rgb", "squash")


def from_files(archives: Sequence[Archive], classes: ClassList, labels: Mapping[str, str]) -> Layout:
    """Pictures by class."""
    members: dict[str, list[tuple[Archive, str]]] = {name: [] for name in classes.names}
    for archive in archives:
        for name in filter(is_picture, archive.names):
            label = _label(name, labels, members)
            if label is not None:
                members[label].append((archive, name))
    missing = [name for name, pictures in members.items() if not pictures]
    if missing:
        raise UserError(
            f"{where(archives)} has no pictures of {len(missing)} of the {len(classes.names)} classes, such "
            f"as {missing[0]}: give the folder (or archive) of all pictures."
        )
    for pictures in members.values():
        pictures.sort(key=lambda item: item[1].rpartition("/")[2])
    rows, counts = grouped_rows(members, classes.names)
    return Layout(
        classes.names,
        tuple(counts),
        [name for _, name in rows],
        (SIZE, SIZE, 3),
        fill_from(rows, decode_84),
        classes.groups,
        classes.group_names,
    )


def read_lists(archives: Sequence[Archive]) -> dict[str, str]:
    """File name to class from every csv with the columns filename and label (Ravi) or class (Vinyals)."""
    labels: dict[str, str] = {}
    for archive in archives:
        for name in archive.names:
            if not name.lower().endswith(".csv"):
                continue
            table = csv.DictReader(io.StringIO(archive.read(name).decode("utf-8", "replace")))
            column = next((key for key in ("label", "class") if key in (table.fieldnames or ())), None)
            if column is None or "filename" not in (table.fieldnames or ()):
                raise UserError(f"'{name}' needs the columns filename and label in its first line.")
            labels.update((row["filename"], row[column]) for row in table)
    return labels


def _label(name: str, labels: Mapping[str, str], wanted: Mapping[str, object]) -> str | None:
    folder, _, file = name.rpartition("/")
    if labels:
        label = labels.get(file)
        return label if label in wanted else None
    for part in (folder.rpartition("/")[2], folder.rpartition("/")[0].rpartition("/")[2], file):
        match = _WNID.match(part)
        if match and match[0] in wanted:
            return match[0]
    return None
