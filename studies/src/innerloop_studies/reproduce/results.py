"""What reproductions leave as JSON: one of them, a member of a batch, and a whole batch."""

from __future__ import annotations

from typing import Any, Required, TypedDict


class Result(TypedDict):
    """A reproduction that was carried out; its file has the ``data`` behind the figures besides."""

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
    """A reproduction in a batch; what is kept of its :class:`Result` is there once it has finished."""

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
    """A batch."""

    scale: Required[str]
    reproductions: Required[list[Member]]
    statements: Required[int]
    hold: Required[int]
    as_recorded: Required[int]
    failed: Required[list[str]]
    seconds: Required[float]
    run: str
