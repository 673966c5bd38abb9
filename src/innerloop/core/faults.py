"""What a machine does to a program, in a sentence: a full disk, a folder that may not be written, no memory.

Such errors are nobody's mistake in the code, so the command tells them without a traceback. Imports nothing
heavy.
"""

from __future__ import annotations

import errno
import os
import re
import sys

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
_LONGEST = 120  # characters of a name in a message


def in_words(error: BaseException) -> str | None:
    """A sentence with the fix, if the machine or the file system is the reason; None for all other errors.

    >>> in_words(OSError(errno.ENOSPC, "No space left on device", "runs/a"))
    'runs/a: the disk is full: free some space, or write to another disk.'
    >>> in_words(KeyError("a")) is None
    True
    """
    if isinstance(error, OSError) and error.errno in _MEANINGS:
        name = error.filename if error.filename is not None else ""
        begin = f"{shortened(printable(name))}: " if name != "" else ""
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
        return f"the name {shortened(printable(name))} is not UTF-8: rename it"
    return (
        f"the name {shortened(printable(proper))} cannot be read in this locale, whose file names are "
        f"{sys.getfilesystemencoding()}: set LC_ALL=C.UTF-8, or PYTHONUTF8=1"
    )


def shortened(text: str, most: int = _LONGEST) -> str:
    """Text of any length in a message.

    >>> shortened("a" * 500, 10)
    'aaaaa…aaaa'
    """
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}…{text[len(text) - (most - half - 1) :]}"


def printable(name: object) -> str:
    r"""A name with what no terminal can show, or what would steer it, written as an escape.

    >>> printable("a" + chr(0xDCFF)), printable(b"b")
    ('a\\udcff', 'b')
    """
    text = name.decode(errors="surrogateescape") if isinstance(name, bytes) else str(name)
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )
