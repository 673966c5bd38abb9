"""A look at every picture of a folder before any is converted: what cannot be read, what is there twice."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from innerloop.core.errors import UserError
from innerloop.core.paths import user_path
from innerloop.data.layouts.layout import cores
from innerloop.data.pictures import (
    ENORMOUS,
    FORMATS,
    BadPictureError,
    Colour,
    check_is_file,
    fit_picture,
    in_threads,
    open_picture,
    too_large,
)
from innerloop.data.preparing import read_bytes

OnBad = Literal["refuse", "skip"]
Head = tuple[tuple[int, int], str]
"""(width, height) and mode of a picture."""
Bad = list[tuple[str, str]]
"""Files that cannot be read, each with the reason."""

_SHOWN = 5


def look_at_heads(root: Path, paths: Sequence[str], on_bad: OnBad) -> tuple[dict[str, Head], Bad]:
    """Size and mode of every readable picture, and what cannot be read.

    Heads show most of what is wrong. Where files may be skipped, or something is wrong anyway, every picture
    is decoded: all that is wrong is reported at once.
    """
    heads, bad = _looked(root, paths, on_bad == "skip")
    if bad and on_bad == "refuse":
        heads, bad = _looked(root, paths, True)
    return heads, bad


def _looked(root: Path, paths: Sequence[str], thoroughly: bool) -> tuple[dict[str, Head], Bad]:
    heads: dict[str, Head] = {}
    bad: Bad = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # giants get a sentence of ours
        looked = list(in_threads(partial(_look, root, thoroughly), paths, cores()))
    for path, head in zip(paths, looked, strict=True):
        if isinstance(head, str):
            bad.append((path, head))
        else:
            heads[path] = head
    return heads, bad


def _look(root: Path, thoroughly: bool, path: str) -> Head | str:
    try:
        check_is_file(root / path)
        with Image.open(root / path, formats=FORMATS) as picture:
            head = picture.size, picture.mode
        if giant := too_large(head[0]):
            return giant
        if thoroughly:  # only decoding shows that the rest is whole
            open_picture(root / path)
        return head
    except BadPictureError as error:
        return str(error)
    except Image.DecompressionBombError:
        return ENORMOUS
    except Exception as error:  # heads of damaged files fail in many ways
        return (
            "it is of no known format" if "identify" in str(error) else str(error)[:80] or "it cannot be read"
        )


def unreadable(bad: Sequence[tuple[str, str]]) -> UserError:
    """What is said of files that cannot be read, each with its reason."""
    shown = "; ".join(f"{path} ({reason})" for path, reason in bad[:_SHOWN])
    more = f" and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    files = "1 file" if len(bad) == 1 else f"{len(bad)} files"
    return UserError(
        f"{files} cannot be read as pictures: {shown}{more}: repair or remove them, or leave them out with "
        '{on_bad="skip"}.',
        names=('on_bad="skip"',),
    )


def shared_pictures(files: Iterable[tuple[Path, Any]]) -> list[list[int]]:
    """Places of files that hold the same bytes and have different labels, together.

    Only files of equal length are read.
    """
    listed = list(files)
    by_size = _grouped({place: _length(path) for place, (path, _) in enumerate(listed)})
    alike = [places for size, places in by_size.items() if size and _labels(listed, places) > 1]
    digests = {place: _digest(listed[place][0]) for places in alike for place in places}
    by_content = _grouped({place: digest for place, digest in digests.items() if digest})
    return sorted(places for places in by_content.values() if _labels(listed, places) > 1)


def refuse_two_labels(pictures: Any, labels: Sequence[Any]) -> None:
    """Refuses picture files that are given with different labels; other pictures are left alone."""
    if not isinstance(pictures, (list, tuple)) or len(pictures) != len(labels):
        return
    if all(isinstance(picture, (str, Path)) for picture in pictures):
        files = [user_path(picture) for picture in pictures]
        if conflicts := shared_pictures(zip(files, labels, strict=True)):
            shown = _shown([[str(pictures[place]) for place in places] for places in conflicts])
            raise UserError(
                f"the same picture is given with different labels ({shown}), and only one can be right: "
                "leave out the wrong ones."
            )


def shared(conflicts: Sequence[Sequence[str]]) -> UserError:
    """What is said of pictures that several classes have."""
    what = "the same picture is" if len(conflicts) == 1 else f"{len(conflicts)} pictures are each"
    return UserError(
        f"{what} in several classes ({_shown(conflicts)}), and only one can be right: remove the wrong ones, "
        'or leave all of them out with {on_bad="skip"}.',
        names=('on_bad="skip"',),
    )


def _shown(conflicts: Sequence[Sequence[str]]) -> str:
    more = f"; and {len(conflicts) - _SHOWN} more" if len(conflicts) > _SHOWN else ""
    return "; ".join(" and ".join(names[:3]) for names in conflicts[:_SHOWN]) + more


def read_files(files: Sequence[Path], size: int, colour: Colour) -> NDArray[np.uint8]:
    """Picture files as one array ``(n, size, size, channels)``."""
    pictures: list[NDArray[np.uint8]] = []
    bad: Bad = []
    for file in files:
        try:
            pictures.append(fit_picture(open_picture(file), size, colour))
        except BadPictureError as error:
            bad.append((str(file), str(error)))
    if bad:
        raise unreadable(bad)
    return np.stack(pictures)


def _grouped(values: Mapping[int, Any]) -> dict[Any, list[int]]:
    groups: dict[Any, list[int]] = {}
    for place, value in values.items():
        groups.setdefault(value, []).append(place)
    return groups


def _labels(files: Sequence[tuple[Path, Any]], places: Sequence[int]) -> int:
    return len({files[place][1] for place in places})


def _length(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _digest(path: Path) -> bytes | None:
    try:
        return hashlib.sha256(read_bytes(path)).digest()
    except BadPictureError:
        return None
