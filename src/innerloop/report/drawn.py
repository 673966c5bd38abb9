"""Figures that a run drew itself: read from its directory, checked, and put into the page."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from innerloop.plots.svg import prefixed
from innerloop.report.figures import Picture
from innerloop.report.load import RunData

HARMLESS = frozenset(
    {"svg", "g", "use", "path", "text", "tspan", "rect", "image", "defs", "clipPath", "style"}
    | {"title", "desc", "linearGradient", "stop"}
)
"""What matplotlib draws with. A script is not among it: run directories come by mail as well."""

LARGE = 1_500_000
"""Bytes of an SVG from which on the PNG beside it is the better picture for a page."""


def drawn_pictures(run: RunData, name: str) -> tuple[list[Picture], list[str]]:
    """The figures of a run, in the order in which it names them, and sentences on those that cannot be shown.

    Args:
        run: of ``reproduce`` or ``analyze``.
        name: prefix of the ids in its pictures.
    """
    pictures, problems = [], []
    for i, stem in enumerate(_stems(run)):
        found = _inline(run.path / stem, f"{name}-{i}")
        if found:
            pictures.append(Picture(Path(stem).name, [], found))
        else:
            problems.append(f"the figure {stem} is missing, or is not a picture of ours.")
    return pictures, problems


def _stems(run: RunData) -> list[str]:
    named = run.result.get("figures")
    if isinstance(named, list) and named:
        return list(dict.fromkeys(Path(str(file)).stem for file in named))
    return sorted(file.stem for file in run.path.glob("*.svg"))


def _inline(stem: Path, name: str) -> str:
    """The SVG as it is, under ids of its own; the PNG if that is missing, too large or not one of ours."""
    words = html.escape(f"Figure {stem.name}", quote=True)
    vector, pixels = stem.parent / f"{stem.name}.svg", stem.parent / f"{stem.name}.png"
    if vector.is_file() and not (vector.stat().st_size > LARGE and pixels.is_file()):
        text = vector.read_text(encoding="utf-8", errors="replace")
        text = text[max(0, text.find("<svg")) :]
        if is_harmless(text):
            text = re.sub(r'^(<svg[^>]*?) role="[^"]*"', r"\1", text, count=1)
            return prefixed(text.replace("<svg", f'<svg role="img" aria-label="{words}"', 1), name)
    if pixels.is_file():
        code = base64.b64encode(pixels.read_bytes()).decode("ascii")
        return f'<img alt="{words}" src="data:image/png;base64,{code}">'
    return ""


def is_harmless(svg: str) -> bool:
    """Whether a picture only draws: no script, no event, nothing fetched from elsewhere.

    >>> is_harmless('<svg><path d="M0 0"/></svg>'), is_harmless('<svg><script>1</script></svg>')
    (True, False)
    >>> is_harmless('<svg onload="x()"/>'), is_harmless('<svg><image href="http://a/b.png"/></svg>')
    (False, False)
    """
    if "<!" in svg:  # entities and comments: matplotlib's are cut off or unused
        svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
        if "<!" in svg:
            return False
    try:
        root = ElementTree.fromstring(svg)
    except ElementTree.ParseError:
        return False
    return all(_draws(one.tag, one.attrib, one.text or "") for one in root.iter())


def _draws(tag: Any, attributes: Mapping[str, str], text: str) -> bool:
    plain = str(tag).rpartition("}")[2]
    if plain not in HARMLESS or (plain == "style" and re.search(r"@import|url\(|<", text)):
        return False
    for key, value in attributes.items():
        short = key.rpartition("}")[2].lower()
        if short.startswith("on") or re.search(r"url\((?!#)|javascript:", value, re.IGNORECASE):
            return False
        if short == "href" and not value.startswith(("#", "data:image/png;base64,")):
            return False
    return True
