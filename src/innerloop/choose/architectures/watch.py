"""How far a search is, in lines: what is done, and how long the rest will take."""

from __future__ import annotations

import time
from collections.abc import Callable

from innerloop.core.words import duration

QUIET = 10.0
"""Seconds between two lines."""


class Watch:
    """Counts work that is done and says so now and then."""

    def __init__(
        self,
        total: float,
        what: str,
        say: Callable[[str], None] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.done, self.count = total, 0.0, 0
        self._what, self._say, self._clock = what, say, clock
        self._began = self._said = clock()

    def tick(self, work: float = 1.0, kept: bool = False) -> None:
        """One more is done; what was kept from before took no time."""
        if kept:
            self.total -= work
            return
        self.done, self.count = self.done + work, self.count + 1
        now = self._clock()
        if self._say is None or now - self._said < QUIET:
            return
        self._said = now
        left = (now - self._began) * max(0.0, self.total / self.done - 1)
        self._say(f"{self.count} {self._what}, {duration(round(left))} left")
