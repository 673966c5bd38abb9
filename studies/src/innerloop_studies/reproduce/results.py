"""What reproductions leave as JSON: one of them, a member of a batch, and a whole batch."""

from __future__ import annotations

from typing import Any, Required, TypedDict


class Result(TypedDict):
    """A reproduction that was carried out; its file has the ``data`` behind the figures besides.

    Attributes:
        name: of it.
        redoes: which table or figure.
        scale: at which it was redone.
        rows: :class:`~innerloop_studies.reproduce.rows.Row` by name.
        protocol: settings that a reader needs.
        figure: the first of them; None if there is none.
        figures: files.
        seconds: that it took.
        run: its directory.
    """

    name: str
    redoes: str
    scale: str
    rows: list[dict[str, Any]]
    protocol: dict[str, Any]
    figure: str | None
    figures: list[str]
    seconds: float
    run: str


class Member(TypedDict, total=False):
    """A reproduction in a batch; what is kept of its :class:`Result` is there once it has finished.

    Attributes:
        name: of it.
        run: its directory, in that of all runs.
        crashed: whether it ended by an error that is not the user's.
        made_by: the source and the libraries.
        status: ``finished``, ``failed`` or ``interrupted``.
        reason: why it did not finish.
        redoes: as in its result.
        rows: as in its result.
        figures: as in its result.
        protocol: as in its result.
        seconds: as in its result.
    """

    name: Required[str]
    run: Required[str]
    crashed: Required[bool]
    made_by: dict[str, str | None]
    status: str
    reason: str
    redoes: str
    rows: list[dict[str, Any]]
    figures: list[str]
    protocol: dict[str, Any]
    seconds: float


class Summary(TypedDict, total=False):
    """A batch.

    Attributes:
        scale: of all.
        reproductions: its members.
        statements: rows of all of them.
        hold: how many of these hold.
        as_recorded: how many are as the repository records.
        failed: names of members that did not finish.
        seconds: of all.
        run: its directory.
    """

    scale: Required[str]
    reproductions: Required[list[Member]]
    statements: Required[int]
    hold: Required[int]
    as_recorded: Required[int]
    failed: Required[list[str]]
    seconds: Required[float]
    run: str
