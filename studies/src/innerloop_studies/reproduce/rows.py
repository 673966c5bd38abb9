"""What a reproduction gives back: rows that compare a paper's statement with what was found here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Say = Callable[[str], None]


class Row(NamedTuple):
    """One statement of a paper."""

    what: str
    paper: Any
    ours: Any
    holds: bool
    ok: bool
    reason: str = ""


class Reproduction(NamedTuple):
    """All rows, the figures by file stem (the first is the main one), data behind them, and the protocol."""

    rows: Sequence[Row]
    figures: Mapping[str, Figure]
    data: Mapping[str, Any]
    protocol: Mapping[str, Any]


def counts_row(judged: Sequence[tuple[float, int]]) -> Row:
    """Whether accuracies are whole numbers of right answers, and not all one, which no experiment gives."""
    right = [(share * answers, answers) for share, answers in judged]
    # shares of one task are float32 numbers: a few thousandths of an answer are theirs
    whole = [-0.5 < n < answers + 0.5 and abs(n - round(n)) < 0.02 for n, answers in right]
    what = "accuracies are whole numbers of right answers, of those that were asked"
    said = f"{sum(whole)} of {len(whole)} are"
    return row(what, "all", said, all(whole) and len({share for share, _ in judged}) > 1)


def same_row(what: str, pairs: Sequence[tuple[float, float]], reason: str = "") -> Row:
    """Whether numbers that two ways must give are the same, to the last bit; and not all one number."""
    same = [one == other for one, other in pairs]
    said = f"{sum(same)} of {len(same)} are"
    return row(what, "the same", said, all(same) and len(set(pairs)) > 1, reason=reason)


def row(
    what: str,
    paper: Any,
    ours: Any,
    holds: bool | None = None,
    *,
    expected: bool = True,
    fails: str = "",
    reason: str = "",
) -> Row:
    """A row; ``holds`` is ``ours`` where that says it; ``expected`` is what is recorded for this scale."""
    # known to fail (``expected=False``, or why in ``fails``) is ok while it does: changes are noticed
    held = bool(ours if holds is None else holds)
    return Row(what, paper, ours, held, held == (expected and not fails), fails or reason)


def listed(values: Iterable[float], spec: str = ".3g", sep: str = ", ") -> str:
    """Numbers for people."""
    return sep.join(f"{value:{spec}}" for value in values)
