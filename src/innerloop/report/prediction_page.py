"""The page of ``innerloop predict``: pictures with their labels, and how far these are to be trusted."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, ImageOps

from innerloop.classify.sureness import copies_lines, covers
from innerloop.core.formatting import visible_text
from innerloop.data.pictures import FORMATS, flatten, in_threads, read_bytes
from innerloop.report.figures import Picture
from innerloop.report.plots.scores import learning_curve_data, learning_curve_figure
from innerloop.report.plots.style import figure_to_svg
from innerloop.report.render import render
from innerloop.report.text import View, number, percent

MOST_CLASSES = 20
"""Classes up to which the confusions are a table; of more only the most frequent ones are told."""
LONGEST = 500  # characters of a name
_LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75)


class Example(NamedTuple):
    """An example on the page: its file, a small picture in base64, and a remark."""

    file: str
    picture: str
    remark: str = ""


class Class(NamedTuple):
    """A class on the page: how many examples it has in all, and those that are shown."""

    name: str
    total: int
    shown: list[Example]


def least_sure_first(predictions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows that are unsure before the others, and the less probable first; else in their order."""
    return sorted(predictions, key=lambda row: (not row["unsure"], row["probability"]))


def labelled_page(
    result: Mapping[str, Any],
    pictures: Sequence[str],
    classes: Sequence[Class],
    confusion: Sequence[Sequence[float]] | None = None,
    facts: Sequence[tuple[str, str]] = (),
) -> str:
    """The HTML."""
    rows = least_sure_first(result["predictions"])
    shown = [_card(row, text) for row, text in zip(rows, pictures, strict=False)]
    names = [readable(name) for name in result["classes"]]
    return render(
        "labelled.html.j2",
        title=f"{_count(len(rows), 'picture')}, {_count(len(names), 'class', 'classes')}",
        lead=_lead(rows),
        expected=_expected(result["expected"]),
        copies=[readable(line) for line in copies_lines(result["copies"])],
        shown=shown,
        left_out=len(rows) - len(shown),
        classes=[_class(one, result["expected"]) for one in classes],
        odd=any(example.remark for one in classes for example in one.shown),
        table=_table(names, confusion) if confusion is not None else None,
        pairs=[] if result["expected"] is None else [_pair(pair) for pair in result["expected"]["confused"]],
        curve=_curve(result["curve"]),
        facts=[(name, readable(value)) for name, value in facts],
    )


def readable(text: Any) -> str:
    """Text that a page can hold, whatever a file's name is made of and however long it is."""
    return visible_text(text, LONGEST)


def _count(n: int, word: str, words: str = "") -> str:
    return f"{number(n)} {word if n == 1 else words or word + 's'}"


def _lead(rows: Sequence[Mapping[str, Any]]) -> str:
    unknown = sum(bool(row["unknown"]) for row in rows)
    unsure = sum(bool(row["unsure"]) for row in rows) - unknown
    parts = [f"{_count(len(rows) - unsure - unknown, 'label')} sure"]
    if unsure:
        parts.append(f"{number(unsure)} unsure")
    if unknown:
        parts.append(f"{number(unknown)} perhaps of none of the classes")
    return ", ".join(parts) + "."


def _expected(expected: Mapping[str, Any] | None) -> View | None:
    if expected is None:
        return None
    return {
        "main": percent(expected["accuracy"]),
        "half": f"{percent(expected['low'])} to {percent(expected['high'])}",
        "words": f"{readable(covers(expected))}. One example of every class was left out at a time, five "
        "times over, and judged by a head that had not seen it; 95 % interval over examples (Wilson).",
    }


def _card(row: Mapping[str, Any], picture: str) -> View:
    others = sorted(row["probabilities"].items(), key=lambda item: -item[1])
    second = next((item for item in others if item[0] != str(row["label"])), None)
    mark = ("bad", "unknown") if row["unknown"] else ("warn", "unsure") if row["unsure"] else ("", "")
    return {
        "file": readable(row["file"]),
        "name": readable(Path(str(row["file"])).name),
        "picture": picture,
        "label": f"unknown? (nearest: {readable(row['label'])})"
        if row["unknown"]
        else readable(row["label"]),
        "probability": "" if row["unknown"] else percent(row["probability"]),
        "second": "" if second is None or row["unknown"] else f"{readable(second[0])} {percent(second[1])}",
        "tone": mark[0],
        "mark": mark[1],
    }


def _class(one: Class, expected: Mapping[str, Any] | None) -> View:
    share = None if expected is None else expected["by_class"].get(one.name)
    text = _count(one.total, "example")
    if share is not None:
        text += f"; {percent(share['accuracy'])} right when left out "
        text += f"({percent(share['low'])} to {percent(share['high'])})"
    shown = [Example(readable(file), text, readable(remark)) for file, text, remark in one.shown]
    return {"name": readable(one.name), "words": text, "shown": shown, "more": one.total - len(one.shown)}


def _pair(pair: Mapping[str, Any]) -> str:
    true, said = readable(pair["true"]), readable(pair["said"])
    return f"{true} was taken for {said} in {percent(pair['share'])} of cases"


def _table(names: Sequence[str], confusion: Sequence[Sequence[float]]) -> View | None:
    """Shares of every true class."""
    if len(names) > MOST_CLASSES:
        return None
    rows = []
    for name, counts in zip(names, confusion, strict=True):
        total = sum(counts)
        rows.append(heat_row(name, [count / total if total else None for count in counts]))
    return {"names": list(names), "rows": rows}


def heat_row(name: str, shares: Sequence[float | None]) -> View:
    """A row of a table of confusions; a share that is not known is a dash."""
    texts = ["–" if share is None else percent(share) if share else "0" for share in shares]
    levels = [sum((share or 0.0) > bound for bound in _LEVELS) for share in shares]  # how dark, 0 to 5
    cells = [{"text": text, "level": level} for text, level in zip(texts, levels, strict=True)]
    return {"name": name, "cells": cells}


def _curve(points: Sequence[Mapping[str, Any]]) -> Picture | None:
    if len(points) < 2:
        return None
    text = ", ".join(f"{percent(point['accuracy'])} with {point['shots']}" for point in points)
    words = f"Right among examples left out: {text}. The band is over random choices of these examples."
    svg = figure_to_svg(learning_curve_figure(learning_curve_data(points)), "curve", "Learning curve", words)
    return Picture("What more examples bring", [words], svg)


SIDE = 128  # pixels of the longer side
_QUALITY = 78


def thumbnails(files: Iterable[Path], room: int) -> list[str]:
    """The first pictures, as many as ``room`` characters hold; empty text for one that cannot be shown."""
    made: list[str] = []
    for text in in_threads(thumbnail, files):
        room -= len(text)
        if room < 0:
            break
        made.append(text)
    return made


def thumbnail(file: Path) -> str:
    """A picture in base64, a JPEG with sides of at most :data:`SIDE`; empty if it cannot be read."""
    try:
        with Image.open(io.BytesIO(read_bytes(file)), formats=FORMATS) as picture:
            picture.draft(None, (2 * SIDE, 2 * SIDE))  # a large JPEG need not be decoded whole
            picture.load()
            small = flatten(ImageOps.exif_transpose(picture))
        small.thumbnail((SIDE, SIDE))
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=_QUALITY)
    except Exception:  # it was read before; whatever has become of it, the page goes on
        return ""
    return base64.b64encode(buffer.getvalue()).decode("ascii")
