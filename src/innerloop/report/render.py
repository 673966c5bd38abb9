"""Templates to pages: everything is escaped, and a page may do nothing but show itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from innerloop._version import __version__
from innerloop.core.telling import shown
from innerloop.report.plots.policy import content_policy
from innerloop.report.plots.style import COLOURS, DARK_COLOURS
from innerloop.runs.pages import MARKER

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_STYLE = re.compile(r"<!--.*?-->|<style.*?</style>", re.DOTALL)  # the page's own style has the rule
LONGEST = 50_000
"""Characters of one text on a page, such as a recipe."""


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
    return shown(value, LONGEST) if isinstance(value, str) and not hasattr(value, "__html__") else value


def coded(text: str) -> Markup:
    """Text in which what stands between backticks is code, as in a terminal; all of it is escaped.

    >>> print(coded("type `innerloop ls` < now"))
    type <code>innerloop ls</code> &lt; now
    >>> print(coded("one ` alone"))
    one ` alone
    """
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
