"""Docstrings as Markdown, for the reference: an extension that the site's settings name."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import griffe

_to_markdown = runpy.run_path(str(Path(__file__).with_name("as_markdown.py")))["to_markdown"]


class Docstrings(griffe.Extension):
    """Applies ``to_markdown`` to every docstring that is collected."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrites the docstring in place, before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = _to_markdown(obj.docstring.value)
