"""Templates to pages: everything is escaped, and a page may do nothing but show itself."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from innerloop._version import __version__
from innerloop.core.formatting import visible_text
from innerloop.report.plots.style import COLOURS, DARK_COLOURS
from innerloop.runs.pages import MARKER

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_STYLE = re.compile(r"<!--.*?-->|<style.*?</style>", re.DOTALL)  # the page's own style has the rule
LONGEST = 50_000  # characters of one text on a page, such as a recipe


def environment() -> Environment:
    """Our templates. Text is escaped; the filter ``svg`` puts drawings of ours into the page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup, escape

    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # drawn here by matplotlib, which escapes names; what a run brings is embedded as an image
    made.filters["svg"] = lambda text: Markup(_STYLE.sub("", text))
    made.filters["whole"] = escape  # however long, as pictures are
    made.filters["coded"] = coded
    return made


def _shown(value: Any) -> Any:
    """Text from files, escaped and of bounded length; our own tags as they are."""
    return (
        visible_text(value, LONGEST) if isinstance(value, str) and not hasattr(value, "__html__") else value
    )


def coded(text: str) -> Markup:
    """Text in which what stands between backticks is code, as in a terminal; all of it is escaped."""
    from markupsafe import Markup, escape

    parts = str(text).split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if place % 2 else part for place, part in enumerate(parts))


def render(template: str, **values: Any) -> str:
    """A page with its style and its content policy."""
    from markupsafe import Markup

    templates = environment()
    colours = list(zip(COLOURS, DARK_COLOURS, strict=True))
    style = templates.get_template("style.css").render(dark_colours=colours)
    return templates.get_template(template).render(
        marker=Markup(MARKER),
        version=__version__,
        style=Markup(style),
        policy=content_policy(style),
        **values,
    )


def content_policy(style: str, script: str | None = None) -> str:
    """A content security policy: our one style and, if there is one, our one script, each by its hash."""
    # a script that came into the page with somebody's files has another hash, and does not run;
    # style attributes are allowed, since matplotlib draws with them: without a network they can only look
    parts = {
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": "'unsafe-inline'",  # for browsers that do not know the next two
        "style-src-elem": _hash(style),
        "style-src-attr": "'unsafe-inline'",
        "script-src": "'none'" if script is None else _hash(script),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items())


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
