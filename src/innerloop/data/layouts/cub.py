"""CUB-200-2011: CUB_200_2011.tgz with images/<class>/<file>.jpg, classes.txt and images.txt."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from innerloop.core.errors import UserError
from innerloop.data.archives import Archive
from innerloop.data.catalogue import ClassList
from innerloop.data.layouts.imagenet import SIZE, decode_84
from innerloop.data.layouts.layout import Layout, fill_from, find_file, where
from innerloop.data.pictures import is_picture

FOLDER: Final = "images"


def cub(archives: Sequence[Archive], classes: ClassList) -> Layout:
    """Whole pictures (no bounding box is used) as 84×84; rows are sorted by class, then file name."""
    listed = _listed(archives)
    members: dict[str, list[tuple[str, Archive, str]]] = {name: [] for name in classes.names}
    for archive in archives:
        for name in filter(is_picture, archive.names):
            parts = name.split("/")
            if len(parts) >= 2 and parts[-2] in members and parts[-3:-2] in ([], [FOLDER]):
                members[parts[-2]].append((f"{parts[-2]}/{parts[-1]}", archive, name))
    rows = [item for label in classes.names for item in sorted(members[label], key=itemgetter(0))]
    present = {path for path, _, _ in rows}
    if listed is not None and listed != present:
        lost = sorted(listed - present) or sorted(present - listed)
        raise UserError(
            f"{where(archives)} and its images.txt do not agree, such as on {lost[0]}; get the archive again."
        )
    missing = [name for name, items in members.items() if not items]
    if missing:
        raise UserError(
            f"{where(archives)} has no pictures of {len(missing)} of CUB's {len(classes.names)} classes, "
            f"such as {missing[0]}: give CUB_200_2011.tgz."
        )
    return Layout(
        classes.names,
        tuple(len(members[label]) for label in classes.names),
        [path for path, _, _ in rows],
        (SIZE, SIZE, 3),
        fill_from([(archive, name) for _, archive, name in rows], decode_84),
    )


def _listed(archives: Sequence[Archive]) -> set[str] | None:
    """Paths in images.txt, whose lines are ``<number> <class>/<file>``."""
    place = find_file(archives, "images.txt")
    if place is None:
        return None
    lines = place[0].read(place[1]).decode("utf-8", "replace").splitlines()
    return {line.split(maxsplit=1)[1].strip() for line in lines if len(line.split(maxsplit=1)) == 2}
