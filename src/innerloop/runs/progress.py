"""Progress on standard error: a live bar on a terminal, else a line now and then; ``log.txt`` always."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from innerloop.core.formatting import duration, visible_text
from innerloop.core.stderr import tell

REFRESH = 0.1  # seconds between redraws of the bar: training steps may be much shorter
SPACING = 1.0  # seconds at least between the moments from which the pace is taken
QUIET = 10.0  # seconds after which a plain line is due
SHORTEST = 2.0  # seconds that must lie between plain lines
SHARE = 0.1  # of the whole after which a plain line is due, unless too soon


class RunLog:
    """Appends time-stamped lines to a run's ``log.txt``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def line(self, text: str) -> None:
        """Append ``text``; each of its lines gets the time."""
        stamp = datetime.now().isoformat(sep=" ", timespec="seconds")
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(f"{stamp}  {part}\n" for part in text.splitlines() or [""])


class Progress:
    """How far a run is, made by :func:`progress`. Between redraws an update costs about a microsecond."""

    def __init__(
        self,
        total: int,
        what: str,
        start: int,
        stream: IO[str] | None,
        log: RunLog | None,
        bar: Any,
        unit: str = "steps",
    ) -> None:
        self._total, self._what, self._stream, self._log, self._bar = total, what, stream, log, bar
        self._unit = unit
        self._task = None if bar is None else bar.add_task(what, total=total, completed=start, numbers="")
        clock = time.monotonic()
        self._recent: deque[tuple[float, int]] = deque([(clock, start)], maxlen=50)
        self._now = (clock, start)
        self._drawn = clock
        self._said_at, self._said_step = clock, start

    def begin(self, step: int) -> None:
        """Count the pace from here: what came before was preparation, or a first step that warms up."""
        self._now = (time.monotonic(), step)
        self._recent.clear()
        self._recent.append(self._now)

    def update(self, step: int, kept: bool = False, /, **numbers: float) -> None:
        """Say that ``step`` steps are done; ``numbers`` (loss=…) stand beside the rate and the time left."""
        # what was ``kept`` from before moves the bar and not the rate
        clock = time.monotonic()
        if kept:
            more = step - self._now[1]
            self._recent = deque([(when, at + more) for when, at in self._recent], maxlen=50)
        self._now = (clock, step)
        if clock - self._drawn < REFRESH and step < self._total:
            return
        self._drawn = clock
        if clock - self._recent[-1][0] >= SPACING:
            self._recent.append(self._now)
        if self._bar is not None:
            self._draw(lambda bar: bar.update(self._task, completed=step, numbers=self._describe(numbers)))
        waited = clock - self._said_at
        due = waited >= QUIET or (waited >= SHORTEST and step - self._said_step >= SHARE * self._total)
        if due or (step >= self._total and self._said_step < self._total):
            self._said_at, self._said_step = clock, step
            self._say(f"{self._what} {step}/{self._total}  {self._describe(numbers)}")

    def line(self, text: str) -> None:
        """Show one line of text above the bar, and keep it in the log."""
        text = visible_text(text)
        if self._bar is not None:
            self._draw(lambda bar: bar.console.print(text, markup=False, highlight=False, soft_wrap=True))
        self._say(text)

    def _say(self, text: str) -> None:
        if self._stream is not None and not tell(text.rstrip(), self._stream):
            self._stream = None  # nobody reads any more: the run goes on, and its log tells
        if self._log is not None:
            self._log.line(text.rstrip())

    def _draw(self, work: Callable[[Any], None]) -> None:
        """Changes the bar; a terminal that has gone takes nothing with it."""
        try:
            work(self._bar)
        except (OSError, SystemExit):  # rich leaves the program where its reader has gone
            self._bar = None

    def _describe(self, numbers: dict[str, float]) -> str:
        parts = [f"{name} {value:.4g}" for name, value in numbers.items()]
        (before, first), (after, last) = self._recent[0], self._now
        if last > first and after > before:
            rate = (last - first) / (after - before)
            parts.append(pace(rate, self._unit))
            if last < self._total:
                parts.append(f"{duration(round((self._total - last) / rate))} left")
        return "  ".join(parts)


@contextmanager
def progress(
    total: int,
    what: str,
    enabled: bool = True,
    *,
    log: RunLog | None = None,
    start: int = 0,
    unit: str = "steps",
) -> Iterator[Progress]:
    """Show progress from ``start`` to ``total`` steps of ``what`` while the block runs."""
    if not (enabled and sys.stderr.isatty()):
        yield Progress(total, what, start, sys.stderr if enabled else None, log, None, unit)
        return
    with _live_bar() as bar:
        yield Progress(total, what, start, None, log, bar, unit)


def _live_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[numbers]}", markup=False),
    )
    return Bar(*columns, console=Console(stderr=True), refresh_per_second=5)


def pace(rate: float, unit: str) -> str:
    """How fast it goes, from a rate per second: slow things by the minute or the hour."""
    for seconds, name in ((1, "s"), (60, "min")):
        if rate * seconds >= 1 or (unit == "steps" and name == "s"):
            return f"{rate * seconds:.3g} {unit}/{name}"
    return f"{rate * 3600:.3g} {unit}/h"


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
