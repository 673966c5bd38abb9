"""How a function gets to worker processes."""

from __future__ import annotations

import io
import pickle
import threading
from collections import ChainMap
from collections.abc import Callable
from typing import Any, ClassVar

from innerloop.core.errors import UserError


class WorkersError(UserError):
    """Worker processes cannot be started here, or died and died again."""


class Parcel:
    """A function on its way to another process.

    Forked processes have it already. For others it is pickled by value, closures included, which pickle
    itself does not do; locks and thread-local values are made anew.
    """

    def __init__(self, function: Callable[..., Any], method: str) -> None:
        self._function: Callable[..., Any] | None = function
        self._bytes = b"" if method == "fork" else _dumped(function)

    def __getstate__(self) -> bytes:
        return self._bytes

    def __setstate__(self, state: bytes) -> None:
        self._function, self._bytes = None, state

    def opened(self) -> Callable[..., Any]:
        """The function, in the process that has it now."""
        function: Callable[..., Any] = self._function or pickle.loads(self._bytes)
        return function


def _dumped(function: Callable[..., Any]) -> bytes:
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        dispatch_table: ClassVar[Any] = ChainMap(
            {type(threading.Lock()): _new_lock, threading.local: _new_local},
            cloudpickle.Pickler.dispatch_table,
        )

    file = io.BytesIO()
    try:
        Pickler(file).dump(function)
    except Exception as error:  # whatever the methods of what it holds raise
        raise WorkersError(
            f"these tasks cannot be sent to other processes ({error}): set {{execution}}=threads.",
            names=("execution",),
        ) from error
    return file.getvalue()


def _new_lock(_: Any) -> tuple[Any, tuple[()]]:
    return threading.Lock, ()


def _new_local(_: Any) -> tuple[Any, tuple[()]]:
    return threading.local, ()
