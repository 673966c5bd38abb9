"""The one exception a user is meant to read. Imports nothing, so the command can start quickly."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator


class UserError(Exception):
    """Bad input: the command prints it as one sentence and leaves with exit code 2, without a traceback.

    Several problems found at once are given as several lines; notes (``add_note``) are warnings beside them.
    """


class NonFiniteError(UserError):
    """Training met a loss or gradient that is not finite; says where, and what usually helps."""


class Problems:
    """Gathers the mistakes of a user, so that all of them are told at once instead of one after the other.

    >>> problems = Problems()
    >>> with problems.collect():
    ...     raise UserError("model.kind=mpl is unknown: set mlp.")
    >>> problems.add("outer.lr=0 is too small: set 0.001.")
    >>> problems.refuse()
    Traceback (most recent call last):
    innerloop.core.errors.UserError: model.kind=mpl is unknown: set mlp.
    outer.lr=0 is too small: set 0.001.
    """

    def __init__(self) -> None:
        self._errors: list[UserError] = []

    def __bool__(self) -> bool:
        return bool(self._errors)

    @property
    def lines(self) -> list[str]:
        """Every problem once, in the order in which they were met."""
        return list(dict.fromkeys(line for error in self._errors for line in str(error).splitlines()))

    def add(self, *problems: str) -> None:
        """Further problems, in words."""
        self._errors += [UserError(problem) for problem in problems]

    @contextlib.contextmanager
    def collect(self) -> Iterator[None]:
        """Keeps a user error that is raised inside, and goes on behind the block.

        Any other exception passes through; but where problems are known already it may be their consequence,
        and they are told in its place.
        """
        try:
            yield
        except UserError as error:
            self._errors.append(error)
        except Exception:
            self.refuse()
            raise

    def refuse(self) -> None:
        """Raises what was gathered, if anything: a single error as it was, several as one with all lines."""
        if not self._errors:
            return
        if len(self._errors) == 1:
            raise self._errors[0]
        gathered = UserError("\n".join(self.lines))
        notes = [note for error in self._errors for note in getattr(error, "__notes__", ())]
        for note in dict.fromkeys(notes):
            gathered.add_note(note)
        raise gathered


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A suggestion to append to an error message, or nothing.

    >>> did_you_mean("inner.step", ["inner.steps", "inner.lr"])
    " (did you mean 'inner.steps'?)"
    >>> did_you_mean("zebra", ["inner.steps"])
    ''
    """
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean '{close[0]}'?)" if close else ""
