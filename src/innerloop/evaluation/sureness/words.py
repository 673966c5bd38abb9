"""What an estimate of accuracy covers, and which examples are copies: the same words everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MOST = 10
"""Names that are listed."""


def listed(names: Sequence[Any]) -> str:
    """Names with commas, and how many more there are.

    >>> listed(["ant", "bee"])
    'ant, bee'
    """
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(map(str, names[:MOST])) + more


def covers(expected: Mapping[str, Any]) -> str:
    """Which pictures it is about: those drawn as the examples were, of classes that were tested.

    >>> covers({"examples": 20, "by_class": {"bee": {}}, "untested": ["ant"]}).partition("; ")[2]
    'not tested, for want of a second picture: ant'
    """
    words = f"on new pictures drawn as the {expected['examples']} examples were"
    untested, tested = expected["untested"], len(expected["by_class"])
    if not untested:
        return words
    of = f"of {tested} of {tested + len(untested)} classes"
    return f"{words}, {of}; not tested, for want of a second picture: {listed(untested)}"


def copies_lines(copies: Sequence[Mapping[str, Any]]) -> list[str]:
    """A warning for each of the first groups of copies, and how many more there are.

    >>> copies_lines([{"label": "ant", "examples": ["1.jpg", "2.jpg"]}])
    ['warning: 2 examples of ant look like copies of one picture, and count as one: 1.jpg, 2.jpg']
    """
    lines = [
        f"warning: {len(row['examples'])} examples of {row['label']} look like copies of one picture, and "
        f"count as one: {listed(row['examples'])}"
        for row in copies[:MOST]
    ]
    if len(copies) > MOST:
        lines.append(f"warning: {len(copies) - MOST} more groups of copies, which --json lists")
    return lines
