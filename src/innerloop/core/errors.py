"""The one exception a user is meant to read, and what a machine does to a program, in a sentence.

A message may name arguments: "set {clip}=10" with ``names=("clip",)``. It reads as a caller in Python knows
them; within :func:`spelling`, as a table says (a recipe calls it ``outer.clip``). Imports no library.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from innerloop.core.formatting import printable, shorten

_TABLE: ContextVar[Mapping[str, str]] = ContextVar("spelling", default={})  # noqa: B039 (never changed in place)
_ALIKE = 0.6
"""Names that are less alike are not suggested."""
_SAME_WORD = 0.8
"""A word that is this much like another is that word, perhaps misspelt."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_MEANINGS = {
    **dict.fromkeys(_FULL, "the disk is full: free some space, or write to another disk"),
    **dict.fromkeys(
        _FORBIDDEN, "it may not be read or written: change its permissions, or use another folder"
    ),
    errno.ENAMETOOLONG: "the name is too long: use a shorter one",
    errno.ELOOP: "it is a link that leads to itself: remove it",
    errno.ENOTDIR: "a part of it is a file and not a folder: use another place",
    errno.EISDIR: "it is a folder where a file is wanted: move it away",
    errno.EMFILE: "too many files are open: raise the limit with `ulimit -n`",
    errno.ENFILE: "too many files are open on this machine: close some programs",
    errno.EIO: "the disk does not answer (input/output error): copy what is on it to another one",
    errno.ESTALE: "the network disk has lost it (stale file handle): try again",
    errno.ENOMEM: "there is not enough memory: use smaller batches or chunks, or fewer threads",
}
_NO_MEMORY = re.compile(
    r"can't allocate memory|not enough memory|out of memory|cannot allocate memory|unable to allocate", re.I
)


class UserError(Exception):
    """Bad input: the command prints it as one sentence and leaves with exit code 2, without a traceback.

    Several problems found at once are given as several lines; notes (``add_note``) are warnings beside them.

    Args:
        message: what is wrong and what to do; arguments that it names stand in braces.
        names: those arguments. Other braces are left alone.

    >>> str(UserError("set {clip}=10, {not} more", names=("clip",)))
    'set clip=10, {not} more'
    """

    def __init__(self, message: str = "", names: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.names = tuple(names)

    def __str__(self) -> str:
        return spell(self.args[0], self.names)

    def settle(self) -> None:
        """Keeps the words of the table in force: whoever gets the error later reads the same ones."""
        known = [name for name in self.names if name in _TABLE.get()]
        self.args = (spell(self.args[0], known),)
        self.names = tuple(name for name in self.names if name not in known)


class NonFiniteError(UserError):
    """Training met a loss or gradient that is not finite; says where, and what usually helps."""


def spell(text: str, names: Iterable[str]) -> str:
    """Text whose ``{name}`` are written as the table in force says, and as they are where it says nothing."""
    table = _TABLE.get()
    for name in names:
        text = text.replace(f"{{{name}}}", table.get(name, name))
    return text


@contextmanager
def spelling(table: Mapping[str, str]) -> Iterator[None]:
    """Within it, messages call arguments what ``table`` says; errors that leave it keep those words."""
    token = _TABLE.set({**_TABLE.get(), **table})
    try:
        yield
    except UserError as error:
        error.settle()
        raise
    finally:
        _TABLE.reset(token)


class Problems:
    """Gathers the mistakes of a user, so that all of them are told at once instead of one after the other."""

    def __init__(self) -> None:
        self._errors: list[UserError] = []

    def __bool__(self) -> bool:
        return bool(self._errors)

    @property
    def lines(self) -> list[str]:
        """Every problem once, in the order in which they were met."""
        return _distinct_lines(map(str, self._errors))

    def add(self, *problems: str) -> None:
        """Further problems, in words."""
        self._errors += [UserError(problem) for problem in problems]

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Keeps a user error that is raised inside, and goes on behind the block."""
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
        lines = _distinct_lines(error.args[0] for error in self._errors)
        gathered = UserError("\n".join(lines), [n for e in self._errors for n in e.names])
        notes = [note for error in self._errors for note in getattr(error, "__notes__", ())]
        for note in dict.fromkeys(notes):
            gathered.add_note(note)
        raise gathered


def _distinct_lines(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(line for text in texts for line in text.splitlines()))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A suggestion to append to an error message, or nothing: by shared words, and by spelling."""
    likeness = {name: _likeness(word, name) for name in known}
    best = max(likeness, key=lambda name: likeness[name], default="")
    return f" (did you mean '{best}'?)" if likeness.get(best, 0) >= _ALIKE else ""


def _likeness(typed: str, name: str) -> float:
    """How alike two names are, from 0 to 1: as texts; or word by word, so that a word may be left out."""
    as_text = difflib.SequenceMatcher(None, typed, name).ratio()
    words, theirs = (re.findall(r"[^\W_]+", text) for text in (typed, name))
    if len(theirs) <= len(words) or not words:
        return as_text
    found = [max(difflib.SequenceMatcher(None, word, other).ratio() for other in theirs) for word in words]
    left_out = (len(theirs) - len(words)) / 100  # of two names with all words, the shorter one
    return max(as_text, sum(found) / len(found) - left_out) if min(found) >= _SAME_WORD else as_text


def fault_message(error: BaseException) -> str | None:
    """A sentence with the fix, if the machine or the file system is the reason; None for all other errors."""
    if isinstance(error, OSError) and error.errno in _MEANINGS:
        name = error.filename if error.filename is not None else ""
        begin = f"{shorten(printable(name))}: " if name != "" else ""
        return f"{begin}{_MEANINGS[error.errno]}."
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error))):
        return f"{_MEANINGS[errno.ENOMEM]}."
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        return f"{not_utf8(error.object)}."
    if isinstance(error, ValueError) and str(error).startswith("embedded null"):
        return "a name holds a zero byte, which no file can have: leave it out."
    return None


def not_utf8(name: str) -> str:
    """Why a file's name cannot be written as text, and what to do: rename it, or set another locale."""
    try:
        proper = os.fsencode(name).decode()
    except UnicodeError:
        return f"the name {shorten(printable(name))} is not UTF-8: rename it"
    return (
        f"the name {shorten(printable(proper))} cannot be read in this locale, whose file names are "
        f"{sys.getfilesystemencoding()}: set LC_ALL=C.UTF-8, or PYTHONUTF8=1"
    )
