"""The estimates of an advice in words, from its plain data: the page and the terminal say the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from innerloop.report.words import number

HARDEST = 5
"""Groups that are named, beside the easiest one."""


def rate_words(rate: Mapping[str, Any]) -> str:
    """The inner rate: point, bracket, convention, uncertainty, what to try, and what it is an estimate for.

    >>> rate_words({"applies": False, "reason": "nothing adapts."})
    'None estimated, because nothing adapts.'
    >>> told = {"applies": True, "alpha": 0.3, "low": 0.1, "high": 0.9, "sweep": [0.1, 0.9], "factor": 5.0}
    >>> words = rate_words({**told, "method": "anil", "convention": "mse", "reason": "for one step"})
    >>> words.partition(" (")[0], words.rpartition("); ")[2]
    ('0.3 for anil, between 0.1 and 0.9', 'worth trying: 0.1, 0.9; for one step.')
    """
    if not rate.get("applies"):
        return f"None estimated, because {rate['reason']}" if rate.get("reason") else ""
    alpha, low, high = (number(rate.get(key), 3) for key in ("alpha", "low", "high"))
    unsure = f"a factor of {number(rate['factor'])} up and down is possible" if rate.get("factor") else ""
    bracketed = "; ".join(part for part in (str(rate.get("convention") or ""), unsure) if part)
    tried = [number(value, 3) for value in rate.get("sweep") or ()]
    return (
        f"{alpha} for {rate.get('method')}, between {low} and {high}"
        + (f" ({bracketed})" if bracketed else "")
        + (f"; worth trying: {', '.join(tried)}" if len(tried) > 1 else "")
        + f"; {rate.get('reason')}."
        + (f" {rate['warning']}" if rate.get("warning") else "")
    )


def landscape_words(part: Mapping[str, Any]) -> str:
    """What closed forms say of adapting, or why they are silent.

    >>> landscape_words({"applies": False, "reason": "nothing is linear"})
    'What adapting brings cannot be told before training: nothing is linear.'
    >>> landscape_words({"applies": True, "gain": 1.5, "interval": [1.2, 1.9], "reason": "one step"})
    'The excess risk of one network for all tasks is 1.5 times that of MAML (95 %: 1.2 to 1.9); one step.'
    """
    reason = str(part.get("reason") or "").removesuffix(".")
    if not part.get("applies"):
        return f"What adapting brings cannot be told before training: {reason}." if reason else ""
    ends = [number(end, 3) for end in part.get("interval") or ()]
    sure = f" (95 %: {' to '.join(ends)})" if ends else ""
    gain = number(part.get("gain"), 3)
    return f"The excess risk of one network for all tasks is {gain} times that of MAML{sure}; {reason}."


def hardness_words(part: Mapping[str, Any]) -> str:
    """Groups in the order of their difficulty, how it was measured, and how such a ranking has predicted.

    >>> hardness_words({"groups": [], "reason": "there are no groups."})
    'there are no groups.'
    >>> groups = [{"name": "Tifinagh", "value": 0.5}, {"name": "Braille", "value": 0.25}]
    >>> hardness_words({"groups": groups, "by": "error of pixels", "evidence": "it agreed with 0.7"})
    'Hardest first: Tifinagh (50 %), Braille (25 %): error of pixels; it agreed with 0.7.'
    """
    groups: Sequence[Mapping[str, Any]] = [g for g in part.get("groups") or () if isinstance(g, Mapping)]
    if not groups:
        return str(part.get("reason") or "")
    easiest = f"; easiest: {_group(groups[-1])}" if len(groups) > HARDEST else ""
    told = f"Hardest first: {', '.join(map(_group, groups[:HARDEST]))}{easiest}"
    return f"{told}: {part.get('by')}; {part.get('evidence')}."


def note_words(rows: Any) -> list[str]:
    """Remarks on rows of the table, each once, with the methods that it is about.

    >>> note_words([{"method": "anil", "note": "see"}, {"method": "r2d2"}, {"method": "maml", "note": "see"}])
    ['anil, maml: see']
    """
    of: dict[str, list[str]] = {}
    for row in rows or ():
        if isinstance(row, Mapping) and row.get("note"):
            of.setdefault(str(row["note"]), []).append(str(row.get("method")))
    return [f"{', '.join(methods)}: {note}" for note, methods in of.items()]


def _group(group: Mapping[str, Any]) -> str:
    return f"{group.get('name')} ({100 * float(group.get('value') or 0):.0f} %)"
