"""Ctrl-C that waits for a good moment, so that what is saved is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from innerloop.core.telling import tell

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def held_interrupts() -> Iterator[Callable[[], None]]:
    """Let Ctrl-C and SIGTERM wait until the yielded function is called, which then raises KeyboardInterrupt.

    Call it between steps: a step is then never half done when the interrupt comes, and a checkpoint can be
    saved. A second interrupt does not wait. One that still waits at the end of the block is raised there.
    Outside the main thread, where Python delivers no signals, nothing is held.

    >>> with held_interrupts() as check:
    ...     check()
    """
    arrived: list[int] = []

    def hold(number: int, _frame: object) -> None:
        """Remembers a signal; the second one interrupts at once."""
        if arrived:
            raise KeyboardInterrupt
        arrived.append(number)
        tell("interrupted: finishing this step (interrupt again to stop at once)")

    def check() -> None:
        """Raises the interrupt that has been held, if there is one."""
        if arrived:
            arrived.clear()
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield check
        return
    before = {number: signal.signal(number, hold) for number in SIGNALS}
    try:
        yield check
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    check()
