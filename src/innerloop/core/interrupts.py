"""Ctrl-C and SIGTERM that wait for a good moment, so that what is saved is whole."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from innerloop.core.stderr import tell

SIGNALS = (signal.SIGINT, signal.SIGTERM)
AGAIN, OFTEN = 0.05, 100
"""Seconds until a signal that came during an import comes once more, and how often it waits so."""


def interrupt_on_signals() -> None:
    """Ctrl-C and SIGTERM (a scheduler, a shutdown) raise KeyboardInterrupt: a run saves a checkpoint."""
    # not during an import, where C code of some libraries makes an ImportError of it: then once more, later
    waited: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        """Interrupts, unless something is being imported."""
        if len(waited) < OFTEN and _is_importing(frame):
            waited.append(number)
            again = threading.Timer(AGAIN, _repeat, (number,))
            again.daemon = True
            again.start()
            return
        waited.clear()
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, interrupt)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, interrupt)


def _repeat(number: int) -> None:
    if os.name == "posix":
        os.kill(os.getpid(), number)  # may wake the main thread, which :func:`signal.raise_signal` does not
    else:
        signal.raise_signal(number)  # there ``os.kill`` would end the process


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


@contextmanager
def defer_interrupts() -> Iterator[Callable[[], None]]:
    """Ctrl-C and SIGTERM wait until the yielded function is called, which then raises KeyboardInterrupt."""
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
