"""Where a user's programs keep what they can make again. Imports nothing heavy."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def user_cache() -> Path:
    """The user's cache folder for innerloop, as the platform has it.

    Raises:
        RuntimeError: the user has no home.
    """
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "innerloop"
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA", home)) / "innerloop"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "innerloop"
