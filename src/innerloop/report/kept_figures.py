"""Figures that a run drew itself: read from its directory, written anew, and put into the page."""

from __future__ import annotations

import base64
from pathlib import Path

from innerloop.report.figures import Picture
from innerloop.report.foreign_svg import rewritten
from innerloop.report.read_run import RunData

LARGE = 1_500_000
"""Bytes of an SVG from which on the PNG beside it is the better picture for a page."""

PNG = b"\x89PNG\r\n\x1a\n"
"""How every PNG starts."""


def drawn_pictures(run: RunData, name: str) -> tuple[list[Picture], list[str]]:
    """The figures of a run, in its order, and sentences on those that cannot be shown."""
    pictures, problems = [], []
    for i, stem in enumerate(_stems(run)):
        picture = _picture(run.path / stem, f"{name}-{i}")
        if picture is not None:
            pictures.append(picture)
        else:
            problems.append(f"the figure {stem} is missing, or is not a picture of ours.")
    return pictures, problems


def _stems(run: RunData) -> list[str]:
    named = run.result.get("figures")
    if isinstance(named, list) and named:
        return list(dict.fromkeys(Path(str(file)).stem for file in named))
    return sorted(file.stem for file in run.path.glob("*.svg"))


def _picture(stem: Path, name: str) -> Picture | None:
    """The SVG, written anew under ids of its own; the PNG if it is missing, too large or not one of ours."""
    title, words = stem.name, f"Figure {stem.name}"
    vector, pixels = stem.parent / f"{stem.name}.svg", stem.parent / f"{stem.name}.png"
    if vector.is_file() and not (vector.stat().st_size > LARGE and pixels.is_file()):
        drawing = rewritten(vector.read_text(encoding="utf-8", errors="replace"), name, words)
        if drawing.text and not drawing.dropped:
            return Picture(title, [], drawing.text)
    if pixels.is_file():
        content = pixels.read_bytes()
        if content.startswith(PNG):  # not any file that a link in the run's directory leads to
            return Picture(title, [], "", base64.b64encode(content).decode("ascii"))
    return None
