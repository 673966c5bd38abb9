"""Rows about short races of ``innerloop advise``, on pictures and on numbers."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from innerloop.reproduce.rows import Row, row

SHARE = 0.1
"""Of the time of the long race, that the short one has."""
ENOUGH = 0.8
"""Share of problems on which the first choice must be close to the best."""

Problems = Sequence[Mapping[str, Any]]
"""Each with ``chosen``, ``long``, ``regret``, ``decided`` and ``share``."""


def counted_row(problems: Problems) -> Row:
    """That every problem was decided, however little was trained."""
    what = "every problem has a choice among the methods that were trained for long"
    chosen = sum(one["chosen"] in one["long"] for one in problems)
    return row(what, len(problems), chosen, bool(problems) and chosen == len(problems))


def race_rows(
    problems: Problems, close: float, what: str, said: str, fails: Collection[str] = ()
) -> list[Row]:
    """Whether first choices are close to the best, races cheap, and leads that were called decided right.

    Args:
        problems: what was found.
        close: the regret that is close.
        what: the statement about first choices.
        said: median and worst regret in words.
        fails: of ``aim``, ``cost`` and ``decided``, what is recorded as not holding.
    """
    near = sum(one["regret"] <= close for one in problems)
    wrong = [one for one in problems if one["decided"] and one["regret"] > close]
    decided = sum(one["decided"] for one in problems)
    share = statistics.median(one["share"] for one in problems)
    return [
        counted_row(problems),
        row(
            what,
            f"{ENOUGH:.0%} (our aim)",
            f"{near} of {len(problems)}; {said}",
            near >= ENOUGH * len(problems),
            expected="aim" not in fails,
        ),
        row(
            "the race costs at most a tenth of the long one",
            "0.1 (our aim)",
            f"{share:.3f} at the median",
            share <= SHARE * 1.1,
            expected="cost" not in fails,
        ),
        row(
            "a lead that is called more than chance is right after long training",
            "all (our aim)",
            f"{decided - len(wrong)} of {decided}",
            not wrong,
            expected="decided" not in fails,
        ),
    ]
