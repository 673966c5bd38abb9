"""An extension of Python-Markdown: formulas as MathML, which browsers draw without a script or a font.

Formulas are written as GitHub has them: ``$`x^2`$`` in a line, and a fence of ``math`` around one of its own.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor

_BLOCK = re.compile(r"^[ \t]*```math\n(.*?)\n[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)
_SPELT = [
    (re.compile(r"\\arg(?![a-zA-Z])"), r"\\operatorname{arg}"),
    (re.compile(r"\\mathbf ?1"), "\N{MATHEMATICAL BOLD DIGIT ONE}"),
    (re.compile(r"\\math(bf|bb|cal) ?([A-Za-z0-9])"), r"\\math\1{\2}"),
]
"""What the converter does not know, or would leave to ``mathvariant``, which browsers ignore."""


def mathml(tex: str, display: str) -> str:
    r"""A formula as MathML, ``inline`` or as a ``block``.

    Raises:
        ValueError: a command is not known.
    """
    for written, spelt in _SPELT:
        tex = written.sub(spelt, tex)
    text = convert(tex, display=display)
    if "\\" in text:
        raise ValueError(f"there is a command in '{tex}' that has no MathML: see _SPELT in formulas.py.")
    return text


class _Inline(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Element | str, int, int]:  # noqa: ARG002
        return self.md.htmlStash.store(mathml(m[1], "inline")), m.start(0), m.end(0)


class _Blocks(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        text = _BLOCK.sub(lambda match: self.md.htmlStash.store(mathml(match[1], "block")), "\n".join(lines))
        return text.split("\n")


class Formulas(Extension):
    """Before code is looked for, which formulas would be taken for."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Both kinds of formulas."""
        md.inlinePatterns.register(_Inline(r"\$`([^`]+)`\$", md), "formulas", 200)
        md.preprocessors.register(_Blocks(md), "formulas", 30)


def makeExtension(**settings: Any) -> Formulas:
    """What the site's settings name as ``formulas``."""
    return Formulas(**settings)
