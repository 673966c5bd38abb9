"""Pictures of foreign runs, written anew: what is not on the list of what matplotlib draws with is not there.

Checking a text and then copying it means to read it exactly as every browser does, which nobody can. So the
picture is parsed, and another text is written from what was understood: known elements, known attributes, and
values of the shape that each of them has. No comment, instruction, entity, style sheet or script is written.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import NamedTuple
from xml.etree import ElementTree

_NAMESPACE = "{http://www.w3.org/2000/svg}"
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_HREF = ("href", "{http://www.w3.org/1999/xlink}href")
_DEEPEST = 60
_ID = r"[\w.-]+"

ELEMENTS = frozenset(
    {"svg", "g", "use", "path", "text", "tspan", "rect", "image", "defs", "clipPath", "title", "desc"}
    | {"linearGradient", "stop", "pattern"}
)
"""What matplotlib draws with."""

QUIETLY_DROPPED = frozenset({"style", "metadata"})
"""What matplotlib writes besides: its one rule stands in the page's own style."""

PROPERTIES = frozenset(
    {"fill", "fill-opacity", "fill-rule", "clip-rule", "opacity", "stop-color", "stop-opacity"}
    | {"stroke", "stroke-opacity", "stroke-width", "stroke-linejoin", "stroke-linecap", "stroke-miterlimit"}
    | {"stroke-dasharray", "stroke-dashoffset", "shape-rendering", "image-rendering"}
    | {"font", "font-style", "font-variant", "font-weight", "font-size", "font-family", "font-stretch"}
    | {"text-anchor", "white-space"}
)
"""What its style attributes set."""

_WORDS = re.compile(r"[\w\s.,#%'\"+-]*", re.ASCII)  # neither escapes nor brackets: no functions, no addresses
_PAINT = re.compile(rf"url\(#({_ID})\)")
_LENGTH = re.compile(r"[-+\d.eE]+(pt|px|em|%)?")
_SHAPES = {
    "d": re.compile(r"[MmLlHhVvCcSsQqTtAaZzEe\d\s.,+-]*"),
    "transform": re.compile(r"(\s*(matrix|translate|scale|rotate|skewX|skewY)\s*\([-+\d.eE,\s]*\)\s*,?)*"),
    "viewBox": re.compile(r"[-+\d.eE,\s]*"),
    "version": re.compile(r"[\d.]*"),
    "role": re.compile(r"img|presentation"),
    "preserveAspectRatio": re.compile(r"[a-zA-Z\s]*"),
    "gradientUnits": re.compile(r"[a-zA-Z]*"),
    "patternUnits": re.compile(r"[a-zA-Z]*"),
    "offset": re.compile(r"[\d.]+%?"),
    **dict.fromkeys(("x", "y", "x1", "y1", "x2", "y2", "dx", "dy", "width", "height"), _LENGTH),
}
_PIXELS = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=\s]*")


class Rewritten(NamedTuple):
    """The new text (empty if there is none), and the names of what was left out of it."""

    text: str
    dropped: list[str]


def rewritten(svg: str, prefix: str = "", label: str = "") -> Rewritten:
    r"""The same picture for a page, from what is known to draw only.

    >>> rewritten('<svg><path d="M0 0" onclick="x()"/><!-- a --><script>1</script></svg>')
    Rewritten(text='<svg><path d="M0 0"/>\n</svg>', dropped=['onclick', 'script'])
    """
    start = svg.find("<svg")
    try:
        root = ElementTree.fromstring(svg[start:] if start >= 0 else svg)
    except (ElementTree.ParseError, ValueError):
        return Rewritten("", ["what is not XML"])
    if _name(root.tag) != "svg":
        return Rewritten("", [str(root.tag)])
    writer = _Writer(root, f"{prefix}-" if prefix else "")
    if label:
        for key in ("role", "aria-label", "aria-labelledby"):
            root.attrib.pop(key, None)
        root.attrib |= {"role": "img", "aria-label": label}
    return Rewritten(writer.element(root, 0), writer.dropped)


class _Writer:
    """Writes one picture; remembers what it left out."""

    def __init__(self, root: ElementTree.Element, prefix: str) -> None:
        self.prefix, self.dropped = prefix, list[str]()
        # only paths may be used again: groups of uses of groups could fill any memory
        self.paths = {one.get("id") for one in root.iter() if _name(one.tag) == "path"}

    def element(self, one: ElementTree.Element, depth: int) -> str:
        """An element and what is in it, as text; empty if it is not on the list."""
        name = _name(one.tag)
        if name not in ELEMENTS or depth > _DEEPEST:
            if name not in QUIETLY_DROPPED:
                self.dropped.append(name or "a foreign element")
            return ""
        written = [self.attribute(name, key, value) for key, value in one.attrib.items()]
        head = f"<{name}{''.join(written)}"
        has_text = name in ("text", "tspan", "title", "desc")
        inside = html.escape(one.text or "", quote=False) if has_text else ""
        for child in one:
            if name in ("title", "desc"):  # a browser reads HTML in these
                self.dropped.append(_name(child.tag))
                continue
            made = self.element(child, depth + 1)
            after = html.escape(child.tail or "", quote=False) if has_text else "\n" if made else ""
            inside += made + after
        return f"{head}>{inside}</{name}>" if inside.strip() or has_text or name == "svg" else f"{head}/>"

    def attribute(self, element: str, key: str, value: str) -> str:
        """An attribute as text; empty if it, or its value, is not on the list."""
        short = "xml:space" if key == _SPACE else "href" if key in _HREF else key
        made = self.value(element, short, value)
        if made is None:
            self.dropped.append(short)
            return ""
        return f' {short}="{html.escape(made)}"'

    def value(self, element: str, key: str, value: str) -> str | None:
        """The value to write, or None."""
        if key in _SHAPES:
            return value if _SHAPES[key].fullmatch(value) else None
        if key in PROPERTIES:
            return self.painted(value)
        special: dict[str, Callable[[], str | None]] = {
            "id": lambda: self.prefix + value if re.fullmatch(_ID, value) else None,
            "aria-labelledby": lambda: self.references(value),
            "aria-label": lambda: value if element == "svg" else None,
            "xml:space": lambda: value if value in ("preserve", "default") else None,
            "clip-path": lambda: self.painted(value) if _PAINT.fullmatch(value) else None,
            "href": lambda: self.reference(element, value),
            "style": lambda: self.style(value),
        }
        return special[key]() if key in special else None

    def references(self, value: str) -> str | None:
        """Several ids under this picture's prefix; None if one of them is no id."""
        names = value.split()
        return " ".join(self.prefix + n for n in names) if all(re.fullmatch(_ID, n) for n in names) else None

    def reference(self, element: str, value: str) -> str | None:
        """What ``href`` may lead to: a path of this picture, or pixels within the file."""
        if element == "use" and value.startswith("#") and value[1:] in self.paths:
            return f"#{self.prefix}{value[1:]}" if re.fullmatch(_ID, value[1:]) else None
        return value if element == "image" and _PIXELS.fullmatch(value) else None

    def painted(self, value: str) -> str | None:
        """A plain value, or a paint or a clip of the picture itself."""
        own = _PAINT.fullmatch(value.strip())
        if own:
            return f"url(#{self.prefix}{own[1]})"
        return value if _WORDS.fullmatch(value) else None

    def style(self, text: str) -> str | None:
        """The known properties; nothing at all is dropped quietly."""
        kept = []
        for part in filter(str.strip, text.split(";")):
            name, _, value = (piece.strip() for piece in part.partition(":"))
            made = self.painted(value) if name in PROPERTIES else None
            if made is None:
                self.dropped.append(f"style {name}")
            else:
                kept.append(f"{name}: {made}")
        return "; ".join(kept)


def _name(tag: object) -> str:
    """The name of an SVG element; empty for those of other languages."""
    text = str(tag).removeprefix(_NAMESPACE)
    return "" if text.startswith("{") else text
