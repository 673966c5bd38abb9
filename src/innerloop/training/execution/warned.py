"""What is said of worker processes that died, and where it goes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class WorkerWarning(RuntimeWarning):
    """A worker process died, and another does its work: nothing is lost but time."""


@contextmanager
def worker_warnings(say: Callable[[str], None]) -> Iterator[None]:
    """Within it every :class:`WorkerWarning` is a line for ``say``; other warnings go where they went.

    >>> with worker_warnings(print):
    ...     warnings.warn("worker 1 was ended", WorkerWarning)
    warning: worker 1 was ended
    """
    before = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        """Gives a worker's warning to ``say``, and any other to what showed warnings before."""
        if issubclass(category, WorkerWarning):
            say(f"warning: {message}")
        else:
            before(message, category, *where, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", WorkerWarning)
        warnings.showwarning = show  # restored with the filters
        yield
