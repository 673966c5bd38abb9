"""Finds a worker that hangs: it has a task, does not answer, and does not compute either.

A task may take as long as it likes, so its time says nothing. A process that waits for something that never
comes (a lock that a thread held when it was forked, a signal that stopped it) uses no processor time, and
that can be seen from outside.
"""

from __future__ import annotations

from pathlib import Path

LOOK = 5.0
"""Seconds between looks at workers that do not answer."""

LIMIT = 120.0
"""Seconds without an answer and without processor time after which a worker hangs."""


class Silence:
    """How long each of some processes has been silent and still, while somebody waited for it.

    What counts are looks and not the clock: if this process was stopped too (Ctrl-Z, a machine that slept),
    nobody waited.

    >>> watch = Silence()
    >>> import os
    >>> watch.hangs(os.getpid())  # the first look
    False
    """

    def __init__(self) -> None:
        self._used: dict[int, int] = {}
        self._still: dict[int, float] = {}

    def hangs(self, pid: int) -> bool:
        """To be asked after every :data:`LOOK` seconds of waiting; where no one can tell, nothing hangs."""
        used = processor_ticks(pid)
        if used is None or used != self._used.get(pid):
            self._still[pid] = 0.0
            if used is not None:
                self._used[pid] = used
            return False
        self._still[pid] += LOOK
        return self._still[pid] >= LIMIT


def look() -> float:
    """:data:`LOOK`, as it is now."""
    return LOOK


def told() -> str:
    """What is said of a worker that was given up."""
    return f"neither answered nor computed for {LIMIT:g} seconds and was killed"


def processor_ticks(pid: int) -> int | None:
    """Processor time that a process has used, in the ticks of its system; None where that is not told.

    >>> processor_ticks(-1) is None
    True
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
        user, system = fields.split()[11:13]
        return int(user) + int(system)
    except (OSError, ValueError):
        return None
