"""Optuna's journal in a folder: whether Optuna can be used here, and a file that a crash has left whole."""

from __future__ import annotations

import contextlib
import importlib.util
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError
from innerloop.runs.manifest import version_of

JOURNAL = "optuna.journal"
"""Optuna's file in a shared folder, with all studies of the folder."""

LEAST = (4, 3)
"""The first Optuna whose journal does not wait for ever for a process that was killed in it."""


def optuna_problem() -> str:
    """What is wrong with the installed Optuna, in a sentence; empty if nothing is.

    >>> "Optuna" in (optuna_problem() or "Optuna is fine")
    True
    """
    installed = version_of("optuna") if importlib.util.find_spec("optuna") else None
    numbers = [int(part) if part.isdigit() else 0 for part in (installed or "0").split(".")]
    if tuple(numbers) >= LEAST:
        return ""
    least = ".".join(map(str, LEAST))
    here = f"{installed} is installed" if installed else "it is not installed"
    return (
        f"sweeps that are shared or drawn need Optuna {least}, and {here}: `pip install 'innerloop[optuna]'`."
    )


def open_journal(path: Path) -> Any:
    """Optuna's storage in a file, which is made if it is not there."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    lock = JournalFileOpenLock(str(path))  # works where the right to make links is missing, as on Windows
    if _is_torn(path):
        lock.acquire()
        try:
            _cut_torn_line(path)
        finally:
            lock.release()
    try:
        return JournalStorage(JournalFileBackend(str(path), lock_obj=lock))
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        raise UserError(
            f"{path} is damaged ({type(error).__name__}): move it away and give the same command again; "
            "finished runs are found where they are, and not repeated."
        ) from None


def _is_torn(path: Path) -> bool:
    if not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) != b"\n"


def _cut_torn_line(path: Path) -> None:
    """Removes half a last line, which a full disk or a power cut left; Optuna would stumble over it."""
    with path.open("rb+") as file:
        file.truncate(file.read().rfind(b"\n") + 1)


@contextlib.contextmanager
def quiet_optuna() -> Iterator[None]:
    """Optuna's own lines, and its remarks on what is experimental, are not for the users of a sweep."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
