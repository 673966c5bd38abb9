"""What docstrings hold besides prose (doctests, Sphinx roles, formulas) as Markdown."""

from __future__ import annotations

import re

_ROLE = re.compile(r":(?:func|class|mod|meth|attr|data):`~?([^`]+)`")
_MATH = re.compile(r":math:`([^`]+)`")
_MATH_BLOCK = re.compile(r"^([ \t]*)\.\. math:: (.+)$", re.MULTILINE)


def to_markdown(text: str) -> str:
    r"""Fences doctests, writes formulas as GitHub has them, and roles as code.

    >>> print(to_markdown("See :func:`~a.b`.\n\n>>> 1 + 1\n2"))
    See `b`.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    text = _ROLE.sub(lambda match: f"`{match[1].rpartition('.')[2]}`", text)
    text = _MATH.sub(lambda match: f"$`{match[1]}`$", text)
    text = _MATH_BLOCK.sub(r"\1```math\n\1\2\n\1```", text)
    lines: list[str] = []
    inside = False
    for line in text.split("\n"):
        starts = line.startswith(">>>")
        if starts and not inside:
            lines += [] if not lines or not lines[-1] else [""]
            lines.append("```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)
