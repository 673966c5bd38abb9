"""How far a long computation is, and how long it will still take, in a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

from innerloop.core.words import duration


class TimeLeft:
    """Tells a line every few seconds: use it as the ``progress`` of :func:`~innerloop.classify.extract`.

    The time up to the first ones that are done includes warming up, and says nothing of the rest.

    Args:
        say: receives the lines.
        every: seconds between them.
        clock: seconds; another one for tests.
        unit: what is counted.

    >>> ticks = iter([0.0, 60.0, 62.0, 66.0])
    >>> tell = TimeLeft(print, every=5.0, clock=lambda: next(ticks))
    >>> for done in (0, 30, 40, 60):
    ...     tell("features", done, 90)
    features: 30 of 90 pictures
    features: 60 of 90 pictures, about 6 s left
    """

    def __init__(
        self,
        say: Callable[[str], None],
        every: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        unit: str = "pictures",
    ) -> None:
        self._say, self._every, self._clock, self._unit = say, every, clock, unit
        self._start: tuple[float, int] | None = None
        self._told = 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        """Called whenever some more are done."""
        now = self._clock()
        if self._start is None or done < self._start[1]:
            self._start, self._told = (now, done), now
        elif not self._start[1]:
            self._start = (now, done)
        if now - self._told < self._every or not done:
            return
        self._told = now
        began, before = self._start
        left = ""
        if done > before:
            left = f", about {duration((now - began) / (done - before) * (total - done))} left"
        self._say(f"{what}: {done:,} of {total:,} {self._unit}{left}")
