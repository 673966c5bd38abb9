"""Lines for people on standard error. Nobody need be listening: work never ends because a reader has gone."""

from __future__ import annotations

import contextlib
import os
import sys
import unicodedata
from typing import IO

from innerloop.core.faults import shortened

_STEERING = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Kinds of characters that steer a terminal or the order of text in place of being seen."""
_HARMLESS = "\n\t\u200c\u200d"
"""Among them: ends of lines, tabs, and what joins letters of some scripts and parts of emoji."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def shown(text: object, most: int | None = None) -> str:
    r"""Text of any origin as a terminal or a page may show it: escapes for what would steer them.

    >>> shown("a\x1b[2J\u202eb"), shown("x" * 50, 9)
    ('a\\x1b[2J\\u202eb', 'xxxx…xxxx')
    """
    words = str(text) if most is None else shortened(str(text), most)
    if words.isprintable():
        return words
    return "".join(
        c.encode("unicode_escape", "surrogatepass").decode()
        if unicodedata.category(c) in _STEERING and c not in _HARMLESS
        else c
        for c in words
    )


def table_cell(value: object) -> object:
    """A cell of a CSV file: text that a spreadsheet would take for a formula gets a quote before it.

    >>> table_cell("=cmd()"), table_cell(-0.5), table_cell("a-b")
    ("'=cmd()", -0.5, 'a-b')
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def tell(text: str, stream: IO[str] | None = None) -> bool:
    """Writes a line to standard error, or to ``stream``; gives whether it could be written.

    What would steer a terminal is escaped. ``innerloop train … 2>&1 | head`` closes the pipe after ten
    lines, and training goes on.
    """
    where = sys.stderr if stream is None else stream
    try:
        where.write(shown(text).rstrip("\n") + "\n")
        where.flush()
    except (OSError, ValueError, AttributeError):  # a reader that has gone, a closed file, none at all
        silence(where)
        return False
    return True


def silence(stream: IO[str] | None) -> None:
    """Sends what is still written to a stream nowhere, so that Python does not stumble over it at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        assert stream is not None
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def open_standard_streams() -> None:
    """Gives a process that was started with closed standard streams open ones, which lead nowhere.

    Otherwise the next file that it opens becomes its standard output, and what is printed ends up in it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
