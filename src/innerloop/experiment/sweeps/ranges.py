"""Ranges that the runs of a sweep are drawn from: ``inner.lr=log(1e-3,1)``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from innerloop.core.errors import UserError, did_you_mean
from innerloop.experiment.recipe.grammar import Assignment, read_value
from innerloop.experiment.recipe.problems import kind, known_settings

_MOST = 2.0**53  # beyond it not every whole number is a float, which is what samplers compute with
_CALL = re.compile(r"([A-Za-z_]+)\((.*)\)")
EXAMPLES = {"uniform": "uniform(0,0.5)", "log": "log(1e-3,1)", "int": "int(1,10)", "logint": "logint(4,64)"}
"""A range of every kind: of any numbers, all or every order of magnitude alike, and of whole numbers."""


class Range(NamedTuple):
    """Where values of a setting are drawn from, both ends included."""

    how: str
    low: float
    high: float

    @property
    def whole(self) -> bool:
        """Whether its values are whole numbers."""
        return self.how in ("int", "logint")

    @property
    def log(self) -> bool:
        """Whether every order of magnitude is as likely as another."""
        return self.how in ("log", "logint")

    def probes(self) -> list[float]:
        """Its ends and a number between them that is not whole unless all are: what a recipe must accept.

        >>> Range("uniform", 1, 5).probes(), Range("int", 1, 5).probes()
        ([1, 2.527864, 5], [1, 2, 5])
        """
        middle = self.low + 0.381966 * (self.high - self.low)
        return [self.low, int(middle) if self.whole else middle, self.high]


def split_ranges(typed: Iterable[Assignment]) -> tuple[dict[str, Range], list[Assignment], list[str]]:
    """Ranges by their setting, the other assignments, and what is wrong with ranges, a sentence each.

    Settings that take text are left alone: ``description=log(1,2)`` is a description.

    >>> items = [Assignment("inner.lr", "log(1e-3,1)", "log(1e-3,1)"), Assignment("inner.steps", 5, "5")]
    >>> ranges, rest, problems = split_ranges(items)
    >>> ranges["inner.lr"], [item.key for item in rest], problems
    (Range(how='log', low=0.001, high=1), ['inner.steps'], [])
    """
    ranges: dict[str, Range] = {}
    rest: list[Assignment] = []
    problems: list[str] = []
    for item in typed:
        call = _CALL.fullmatch(item.raw.strip())
        if call is None or not isinstance(item.value, str) or _takes_text(item.key):
            rest.append(item)
            continue
        try:
            ranges[item.key] = read_range(item.key, call[1], call[2])
        except UserError as error:
            problems.append(str(error))
    return ranges, rest, problems


def _takes_text(key: str) -> bool:
    field = known_settings().get(key)
    return field is not None and kind(field)[0] is str


def read_range(key: str, how: str, inside: str) -> Range:
    """The range that ``how(inside)`` means.

    >>> read_range("inner.steps", "int", "1, 10")
    Range(how='int', low=1, high=10)
    """
    typed = f"{key}={how}({inside})"
    if how not in EXAMPLES:
        raise UserError(
            f"{typed}: there is no range '{how}'{did_you_mean(how, EXAMPLES)}; "
            f"write {', '.join(EXAMPLES.values())}."
        )
    ends = [read_value(part) for part in inside.split(",")]
    if len(ends) != 2 or not all(_is_number(end) for end in ends):
        raise UserError(f"{typed}: a range has two numbers, such as {key}={EXAMPLES[how]}.")
    low, high = ends
    if how in ("int", "logint") and not all(isinstance(end, int) for end in ends):
        raise UserError(f"{typed}: {how} takes whole numbers, such as {key}={EXAMPLES[how]}.")
    if how in ("log", "logint") and min(low, high) <= 0:
        raise UserError(f"{typed}: {how} takes numbers above 0, such as {key}={EXAMPLES[how]}.")
    if low >= high:
        fix = f"{key}={how}({high},{low})" if low > high else f"{key}={low}"
        raise UserError(f"{typed}: the smaller number comes first: write {fix}.")
    return Range(how, low, high)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -_MOST < value < _MOST
