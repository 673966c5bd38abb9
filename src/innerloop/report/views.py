"""What templates show: tables, verdicts and sections, as values that several kinds of pages share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from innerloop.report.figures import Picture

Pairs = list[tuple[str, str]]
"""Names and values, in order."""


class Table(NamedTuple):
    """A table: the first cell of a row is its name."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]


class Explained(NamedTuple):
    """Something that was decided, in sentences, in rows of names and values, and in tables."""

    sentences: list[str]
    rows: Pairs
    tables: list[Table]


class Told(NamedTuple):
    """A part of what a terminal shows: of the kind ``table``, or lines with or without a name."""

    kind: str
    rows: list[Any]
    head: Sequence[str] = ()


class Ending(NamedTuple):
    """How a run ended: a word, a tone for its colour, a sentence, the recorded reason."""

    word: str
    tone: str
    sentence: str
    reason: str


class Verdict(NamedTuple):
    """A sentence with its tone; and how many statements of a paper there are, hold, and are as recorded."""

    text: str
    tone: str
    statements: int = 0
    hold: int = 0
    recorded: int = 0


class SettingRow(NamedTuple):
    """A setting, its value and its default, what it means, and whether it was changed."""

    key: str
    value: str
    default: str
    about: str
    changed: bool = False


class Statement(NamedTuple):
    """A statement of a paper beside what was found: whether it holds, and whether that is on record."""

    what: str
    paper: str
    ours: str
    holds: bool
    ok: bool
    reason: str


class ResultView(NamedTuple):
    """Everything the template shows of a run that trains nothing."""

    kind: str
    label: str
    id: str
    redoes: str
    status: Ending
    problems: list[str]
    verdict: Verdict | None
    pictures: list[Picture]
    course: Pairs
    environment: Pairs
    scale: str = ""
    scale_words: str = ""
    rows: Sequence[Statement] = ()
    tables: Sequence[Table] = ()
    parts: Sequence[Told] = ()
    cells: Sequence[Picture] = ()
    protocol: Sequence[tuple[str, str]] = ()
    words: Sequence[str] = ()
    settings: Sequence[SettingRow] = ()
    numbers: Sequence[tuple[str, str]] = ()
