"""Which cases of a test that is marked ``one_in(n)`` run now: by their ids and the number of the commit."""

from __future__ import annotations

import os
import subprocess
import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest

from support.places import TESTS

GIVEN = "INNERLOOP_TEST_TURN"
"""The turn that worker processes are given by the first process, and anyone may give."""


def turn(folder: Path = TESTS) -> int:
    """The number of the commit along the main line: one more with every commit.

    A shallow clone does not know it, so the commit's hash stands in: all cases run in the end, though not
    within n commits. Zero without git, as in a source archive.
    """
    if GIVEN in os.environ:
        return int(os.environ[GIVEN])

    def git(*words: str) -> str:
        asked = ["git", "-C", str(folder), *words]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if git("rev-parse", "--is-shallow-repository") == "true":
            return int(git("rev-parse", "HEAD"), 16)
        return int(git("rev-list", "--count", "--first-parent", "HEAD"))
    except (OSError, subprocess.CalledProcessError):
        return 0


def mark_slow(items: Iterable[pytest.Item], turn: int) -> None:
    """All cases of tests marked ``one_in(n)`` but about one in n become slow: CI has no time for all.

    Within n turns each of them runs once.
    """
    for item in items:
        marker = item.get_closest_marker("one_in")
        if marker is not None and (zlib.crc32(item.nodeid.encode()) + turn) % marker.args[0]:
            item.add_marker("slow")
