"""What a reproduction gives back: rows that compare a paper's statement with what was found here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Say = Callable[[str], None]


class Row(NamedTuple):
    """One statement of a paper.

    Attributes:
        what: the statement, or the quantity, in words.
        paper: what the paper gives, a number or text.
        ours: what was found here, with its interval where there is one.
        holds: whether the paper's statement holds here.
        ok: whether that is what the repository records for this scale.
        reason: why it is recorded as failing, or how ``holds`` was decided.
    """

    what: str
    paper: Any
    ours: Any
    holds: bool
    ok: bool
    reason: str = ""


class Reproduction(NamedTuple):
    """All rows, the figures by file stem (the first is the main one), data behind them, and the protocol.

    Attributes:
        rows: at least one.
        figures: drawn, not yet written.
        data: what the figures show, as plain lists and numbers.
        protocol: settings that a reader needs to judge the numbers: seeds, sizes, what was shortened.
    """

    rows: Sequence[Row]
    figures: Mapping[str, Figure]
    data: Mapping[str, Any]
    protocol: Mapping[str, Any]


def row(what: str, paper: Any, ours: Any, holds: bool, *, expected: bool = True, reason: str = "") -> Row:
    """A row; ``expected`` is what the repository records for this scale.

    A statement that is known to fail has ``expected=False`` and a ``reason``; it is then ok while it fails,
    and no longer ok once it holds, so that a change in either direction is noticed.

    >>> row("gain", 3, 3.1, True).ok, row("bound", "<", ">", False, expected=False, reason="slip").ok
    (True, True)
    """
    return Row(what, paper, ours, bool(holds), bool(holds) == expected, reason)
