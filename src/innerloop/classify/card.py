"""The card of a model: what a stranger must know before trusting or passing on a file, in Markdown."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from innerloop.classify.results import About
from innerloop.core.errors import UserError
from innerloop.core.formatting import visible_text
from innerloop.nets.pretrained import UNKNOWN

LONGEST = 500  # characters of a name
SHOWN = 12  # classes that the first sentence names
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&$])")


def card_file(path: Path) -> Path:
    """Where the card of a file stands."""
    return path.with_name(path.name + ".md")


def refuse_to_overwrite(*paths: Path | None) -> None:
    """Nothing is overwritten; told before anything is computed."""
    there = [path for path in paths if path is not None and path.exists()]
    if there:
        raise UserError(f"{there[0]} is there already: give another name, or remove it.")


def card(about: About, file: str, command: str = "", checked: float | None = None) -> str:
    """The text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"escaped": escaped, "share": share, "day": _day}
    return templates.get_template("card.md.j2").render(
        about=about,
        file=file,
        quoted=json.dumps(file),
        most=SHOWN,
        unknown=UNKNOWN,
        checked=checked,
        verb=" ".join(command.split()[:2]),  # the rest names places on the machine of whoever made it
        caller=left_to_the_caller(about["input"]) if "input" in about else [],
    )


def escaped(text: Any) -> str:
    """Text that Markdown and HTML take for text, on one line."""
    return _SPECIAL.sub(r"\\\1", visible_text(" ".join(str(text).split()), LONGEST))


def share(value: float) -> str:
    """A share in per cent."""
    return f"{100 * value:.3g} %"


def _day(moment: str) -> str:
    when = datetime.fromisoformat(moment)
    return f"{when.day} {when:%B %Y}"


def left_to_the_caller(given: dict[str, Any]) -> list[str]:
    """What must be done before pictures are given to a graph."""
    grey = given["colour"] == "grey"
    colour = "one channel of grey, as Pillow's `convert('L')` makes it" if grey else "RGB, in this order"
    lines = [
        "decode the file, and turn the picture upright, as its EXIF data say;",
        f"bring it to 8 bits a channel and to {colour}; innerloop makes transparent parts white;",
    ]
    if not given["resized"]:
        _, height, width, _ = given["shape"]
        return [
            *lines,
            f"bring it to {width}×{height} pixels with Pillow: {given['how']}; other filters give other "
            "numbers.",
        ]
    return [
        *lines,
        "give pictures of one size at a time, since a batch has one height and one width. Time grows with "
        "their size: halve pictures of many megapixels first if it matters.",
    ]
