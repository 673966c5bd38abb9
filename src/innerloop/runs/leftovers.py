"""What killed processes left half-written in a run: never read, and removed when somebody goes on with it."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from innerloop.runs.checkpoints import FOLDER
from innerloop.runs.directory import MANIFEST, RECIPE

_OWN = (MANIFEST, RECIPE, "metrics.jsonl")
"""Files of a run that only its one writer writes; evaluations and pages may be written by others, now."""


def clear_leftovers(run: Path) -> None:
    """To be called by whoever holds the lock of the run: what is unfinished is then nobody's.

    A checkpoint clears up after those before it; a run that was killed behind its last one has no other.
    """
    for path in (run / FOLDER).glob(".tmp-*"):
        shutil.rmtree(path, ignore_errors=True)
    for path in [
        *(run / FOLDER).glob(".*.tmp"),
        *(path for name in _OWN for path in run.glob(f".{name}-*.tmp")),
    ]:
        with contextlib.suppress(OSError):
            path.unlink()
