"""How long a test waits for what must happen: no test's outcome may depend on how busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 600.0
"""Seconds: far more than anything here needs, so that only what never ends is given up."""


def wait_until(condition: Callable[[], bool], every: float = 0.02) -> None:
    """Returns as soon as the condition holds; fails if it never does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(every)
