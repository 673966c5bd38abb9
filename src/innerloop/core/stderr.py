"""Lines for people on standard error. Nobody need be listening: work never ends because a reader has gone."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import IO

from innerloop.core.formatting import visible_text


def tell(text: str, stream: IO[str] | None = None) -> bool:
    """Writes a line to standard error, or to ``stream``; gives whether it could be written."""
    # ``innerloop train … 2>&1 | head`` closes the pipe after ten lines, and training goes on
    where = sys.stderr if stream is None else stream
    try:
        where.write(visible_text(text).rstrip("\n") + "\n")
        where.flush()
    except (OSError, ValueError, AttributeError):  # a reader that has gone, a closed file, none at all
        silence(where)
        return False
    return True


def silence(stream: IO[str] | None) -> None:
    """Sends what is still written to a stream nowhere, so that Python does not stumble over it at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        assert stream is not None
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def open_standard_streams() -> None:
    """Gives a process that was started with closed standard streams open ones, which lead nowhere."""
    # else the next file that it opens becomes its standard output, and what is printed ends up in it
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
