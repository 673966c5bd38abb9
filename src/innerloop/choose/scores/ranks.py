"""Candidates in order: ranks of a score, and sums of ranks of several."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from innerloop.choose.scores.table import find
from innerloop.core.errors import UserError


def ranks(values: Sequence[float], higher_is_better: bool) -> list[float]:
    """The place of every value, 1 for the best; equal values share the mean of their places.

    What is not a number comes last.

    >>> ranks([3.0, 1.0, 3.0, math.nan], higher_is_better=True)
    [1.5, 3.0, 1.5, 4.0]
    """
    costs = [math.inf if math.isnan(v) else -v if higher_is_better else v for v in values]
    keys = [(math.isnan(v), cost) for v, cost in zip(values, costs, strict=True)]
    before = {key: sum(other < key for other in keys) for key in set(keys)}
    return [before[key] + (keys.count(key) + 1) / 2 for key in keys]


def rank_sums(columns: Mapping[str, Sequence[float]]) -> list[float]:
    """The sum of every candidate's ranks by several scores; the lowest is the best.

    Args:
        columns: scores by their names in ``SCORES``, which say what is better; candidates in one order.

    Raises:
        UserError: for unknown names and columns of unequal length.

    >>> rank_sums({"parameters": [10, 20, 30], "ntk": [5.0, 7.0, 6.0]})
    [4.0, 5.0, 3.0]
    """
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) != 1:
        raise UserError(f"a rank sum needs every score of every candidate, got {lengths}.")
    placed = [ranks(values, find(name).better == "higher") for name, values in columns.items()]
    return [sum(places) for places in zip(*placed, strict=True)]
