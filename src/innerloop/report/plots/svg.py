"""A figure as SVG text: the same bytes every time, safe to put several into one page."""

from __future__ import annotations

import html
import io
import re
from typing import TYPE_CHECKING

from innerloop.report.plots.style import INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ID = re.compile(r'(\bid="|url\(#|href="#)')


def figure_to_svg(figure: Figure, name: str = "figure", title: str = "", description: str = "") -> str:
    """One ``<svg>`` element, for a page or a file of its own.

    Ids are derived from the content and prefixed with ``name``, so the text is reproducible and two
    figures never share one. Text stays text; ink becomes ``currentColor``, the background transparent.

    Args:
        figure: what a renderer of this room returned.
        name: prefix of every id; give each figure of a page its own.
        title: a short name for screen readers.
        description: what there is to see, for those who cannot.
    """
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = prefixed(text, name)
    text = re.sub(re.escape(INK), "currentColor", text, flags=re.IGNORECASE)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 system-ui, 'DejaVu Sans', sans-serif", text)
    return _described(text, name, title, description).strip() + "\n"


def prefixed(svg: str, name: str) -> str:
    """The same picture with ``name`` before every id, and before every use of one.

    >>> prefixed('<path id="a"/><use href="#a" fill="url(#a)"/>', "r1")
    '<path id="r1-a"/><use href="#r1-a" fill="url(#r1-a)"/>'
    """
    return _ID.sub(rf"\g<1>{name}-", svg)


def _described(svg: str, name: str, title: str, description: str) -> str:
    """Adds role, title and description: an image without words is no image to some readers."""
    head, rest = svg.split(">", 1)
    if not title and not description:
        return f'{head} role="presentation">{rest}'
    used = [(tag, text) for tag, text in (("title", title), ("desc", description)) if text]
    names = " ".join(f"{name}-{tag}" for tag, _ in used)
    words = "".join(f'\n <{tag} id="{name}-{tag}">{html.escape(text)}</{tag}>' for tag, text in used)
    return f'{head} role="img" aria-labelledby="{names}">{words}{rest}'
