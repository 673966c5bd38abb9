"""Files that were read before and have not changed since: what stands for their content is known.

A file is known by its path and by what the system tells of it: size, inode, and the times at which content
(mtime) and content or attributes (ctime) last changed, to the nanosecond. Nobody can set the last one, so
that a file that was written anew and given its old time is read again. One that changed in the last two
seconds is not remembered, since it may change once more without a later time.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from innerloop.classify.features.cache import FeatureFiles
from innerloop.classify.features.items import Digest, Item
from innerloop.data.pictures import BadPictureError, in_threads

Outcome = Digest | str
"""What stands for a picture, or why it cannot be read."""
SETTLED = 2.0
"""Seconds after which a time of change is trusted: clocks of file systems are coarse."""
FOLDER = "files"
_WORDS = 8  # a digest as this many numbers of four bytes: rows of the same files that keep features


class State(NamedTuple):
    """What the system tells of a file, as one key, and when it last changed."""

    key: Digest
    changed: float


def digests(
    items: Sequence[Item], folder: Path | None, workers: int, clock: Callable[[], float] = time.time
) -> list[Outcome]:
    """What stands for each picture; files are only read if they are new or have changed."""
    if folder is None:
        return list(in_threads(_stood_for, items, workers))
    now = clock()
    states = [_state(item) for item in items]
    with FeatureFiles(folder / FOLDER, _WORDS, say=lambda _: None) as files:  # features say it themselves
        known = files.find(state.key for state in states if state is not None)
        outcomes: list[Outcome | None] = [
            None if state is None or state.key not in known else known[state.key].tobytes()
            for state in states
        ]
        left = [i for i, outcome in enumerate(outcomes) if outcome is None]
        fresh = dict(zip(left, in_threads(_stood_for, [items[i] for i in left], workers), strict=True))
        settled = {
            state.key: outcome
            for i, outcome in fresh.items()
            if isinstance(outcome, bytes) and (state := states[i]) and now - state.changed > SETTLED
        }
        rows = [np.frombuffer(digest, "<f4") for digest in settled.values()]
        files.add(list(settled), np.stack(rows) if rows else np.empty((0, _WORDS), np.float32))
    return [fresh[i] if outcome is None else outcome for i, outcome in enumerate(outcomes)]


def _stood_for(item: Item) -> Outcome:
    try:
        return item.digest()
    except BadPictureError as error:
        return str(error)


def _state(item: Item) -> State | None:
    """None for a picture that is no file, or that cannot be looked at: reading it says why."""
    if not isinstance(item.given, Path):
        return None
    try:
        told = os.stat(item.given)
    except (OSError, ValueError):
        return None
    about = (told.st_size, told.st_mtime_ns, told.st_ctime_ns, told.st_ino, told.st_dev)
    name = os.fsencode(os.path.abspath(item.given))
    key = hashlib.sha256(f"{about}".encode() + b"\0" + name).digest()
    return State(key, max(told.st_mtime, told.st_ctime))
