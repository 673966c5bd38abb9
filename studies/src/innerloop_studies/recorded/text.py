"""Tables of Markdown, times and intervals as the pages print them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown.

    >>> print(table(("a", "b"), [("1", "")]))
    | a | b |
    | --- | --- |
    | 1 |  |
    """
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def took(seconds: float) -> str:
    """A time for people.

    >>> took(41.4), took(463), took(8639)
    ('41 s', '8 min', '2 h 24 min')
    """
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def interval(value: Mapping[str, Any], scale: float = 1.0, digits: int = 1) -> str:
    """A mean with its interval of 95 %, or with its deviation where that is what was kept.

    >>> interval({"mean": 0.6463, "ci95": 0.0082, "n": 3}, 100)
    '64.6 ± 0.8'
    """
    around = value["ci95"] if "ci95" in value else value["deviation"]
    return f"{scale * value['mean']:.{digits}f} ± {scale * around:.{digits}f}"
