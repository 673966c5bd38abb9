"""Starting another Python: it imports what this one would, never what lies in the current folder."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

_VARIABLE = "PYTHONSAFEPATH"


def python_command(*arguments: str) -> list[str]:
    """The command that starts this interpreter again.

    Without ``-P``, ``python -m`` and ``python -c`` look for modules in the current folder first: a file
    called ``torch.py`` in a folder of somebody else's data would be run.

    >>> python_command("-m", "innerloop")[1:]
    ['-P', '-m', 'innerloop']
    """
    return [sys.executable, "-P", *arguments]


@contextlib.contextmanager
def safe_path() -> Iterator[None]:
    """The same for processes that a library starts for us, such as those of a pool, while the context lasts.

    >>> with safe_path():
    ...     os.environ["PYTHONSAFEPATH"]
    '1'
    """
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
