"""The one exception a user is meant to read. Imports nothing, so the command can start quickly."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input: the command prints it as one sentence and leaves with exit code 2, without a traceback.

    Several problems found at once are given as several lines.
    """


class NonFiniteError(UserError):
    """Training met a loss or gradient that is not finite; says where, and what usually helps."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A suggestion to append to an error message, or nothing.

    >>> did_you_mean("inner.step", ["inner.steps", "inner.lr"])
    " (did you mean 'inner.steps'?)"
    >>> did_you_mean("zebra", ["inner.steps"])
    ''
    """
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean '{close[0]}'?)" if close else ""
