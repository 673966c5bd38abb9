"""How many cores there are for us. Imports no library, so the command can start quickly."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Cores this process may use: its affinity, which containers and schedulers set."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        return os.cpu_count() or 1
