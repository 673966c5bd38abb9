"""How many cores there are for us. Imports no library, so the command can start quickly."""

from __future__ import annotations

import os

_sharing = 1


def available_cores() -> int:
    """Cores this process may use: its affinity, which containers and schedulers set."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        cores = os.cpu_count() or 1
    return max(1, cores // _sharing)


def divide_cores(among: int) -> None:
    """Says that this many processes share this machine's cores evenly, this one among them.

    >>> before = available_cores()
    >>> divide_cores(before)
    >>> available_cores()
    1
    >>> divide_cores(1)
    >>> available_cores() == before
    True
    """
    global _sharing
    _sharing = among
