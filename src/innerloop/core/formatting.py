"""Scores, times and text of any origin as people read them: on the terminal, in Python and on pages."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from itertools import pairwise

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST = 120  # characters of a name in a message
_STEERING = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Kinds of characters that steer a terminal or the order of text in place of being seen."""
_HARMLESS = "\n\t\u200c\u200d"
"""Among them: ends of lines, tabs, and what joins letters of some scripts and parts of emoji."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def score_text(name: str, mean: float | None, ci95: float | None) -> str:
    """A score with its interval."""
    if mean is None or not math.isfinite(mean):
        return f"{name} is not finite"
    if ci95 is not None and not math.isfinite(ci95):
        ci95 = None  # a single task has no interval
    if name == "accuracy":
        return f"accuracy {100 * mean:.1f}" + (f" ± {100 * ci95:.1f} %" if ci95 is not None else " %")
    return f"{name} {mean:.4g}" + (f" ± {ci95:.2g}" if ci95 is not None else "")


def difference_text(name: str, mean: float, ci95: float | None) -> str:
    """A difference of two scores with its interval, in the unit of the scores."""
    known = ci95 is not None and math.isfinite(ci95)
    if name == "accuracy":
        return f"{100 * mean:+.1f}" + (f" ± {100 * (ci95 or 0):.1f}" if known else "") + " points"
    return f"{mean:+.4g}" + (f" ± {ci95:.2g}" if known else "")


def duration(seconds: float) -> str:
    """A length of time in the two units that matter; below ten seconds with a decimal, unless it is whole."""
    whole = round(seconds)
    if seconds < 10 and seconds != whole:
        return f"{seconds:.1f} s"
    units = [(86400, "d"), (3600, "h"), (60, "min"), (1, "s")]
    for (big, name), (small, minor) in pairwise(units):
        if whole >= big:
            rest = whole % big // small
            return f"{whole // big} {name}" + (f" {rest} {minor}" if rest else "")
    return f"{whole} s"


def parse_duration(text: str) -> float | None:
    """The seconds in a length of time as it is typed: 90s, 30m, 1.5h, 1h30m; None if it is none."""
    text = text.replace(" ", "").lower()
    parts = re.findall(r"(\d+(?:\.\d+)?)(min|[smhd]?)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def visible_text(text: object, most: int | None = None) -> str:
    """Text of any origin as a terminal or a page may show it: escapes for what would steer them."""
    words = str(text) if most is None else shorten(str(text), most)
    return _escaped(words, lambda c: unicodedata.category(c) in _STEERING and c not in _HARMLESS)


def table_cell(value: object) -> object:
    """A cell of a CSV file: text that a spreadsheet would take for a formula gets a quote before it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def shorten(text: str, most: int = _LONGEST) -> str:
    """Text of any length in a message."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}…{text[len(text) - (most - half - 1) :]}"


def printable(name: object) -> str:
    """A name with what no terminal can show, or what would steer it, written as an escape."""
    text = name.decode(errors="surrogateescape") if isinstance(name, bytes) else str(name)
    return _escaped(text, lambda c: not c.isprintable())


def _escaped(text: str, steers: Callable[[str], bool]) -> str:
    if text.isprintable():
        return text
    return "".join(c.encode("unicode_escape", "surrogatepass").decode() if steers(c) else c for c in text)
