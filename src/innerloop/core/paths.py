"""A user's paths: as typed, and the cache folder of the platform. Imports nothing heavy."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from innerloop.core.errors import UserError


def user_path(text: str | Path) -> Path:
    """A path as a user typed it, with ``~`` and ``~name`` as the shell means them."""
    if "\0" in str(text):
        raise UserError("a path holds a zero byte, which no file can have: leave it out.")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        first = Path(text).parts[0]
        raise UserError(
            f"{text}: there is no home folder for '{first}' on this machine: write the path in full, or "
            "put ./ before a name that begins with ~."
        ) from None


def user_cache() -> Path:
    """The user's cache folder for innerloop, as the platform has it."""
    if sys.platform not in ("darwin", "win32") and os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "innerloop"
    try:
        home = Path.home()
    except RuntimeError:
        raise UserError(
            "this user has no home folder: set HOME, or INNERLOOP_DATA to a folder for data."
        ) from None
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "innerloop"
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA", home)) / "innerloop"
    return home / ".cache" / "innerloop"
