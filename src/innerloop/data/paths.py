"""Where data lives on this machine. Imports nothing heavy: the command asks it at every start."""

from __future__ import annotations

import os
import re
from pathlib import Path

from innerloop.core.paths import user_cache, user_path


def data_folder() -> Path:
    """``$INNERLOOP_DATA``, else the user's cache folder as the platform has it."""
    if named := os.environ.get("INNERLOOP_DATA"):
        return user_path(named)
    return user_cache()


def cache_folder() -> Path:
    """Conversions of the user's own folders and arrays; may be deleted at any time, they are made again."""
    return data_folder() / "cache"


def is_name(name: str) -> bool:
    """Whether a word may name a dataset of one's own; paths may not."""
    return re.fullmatch(r"\w[\w.-]*", name) is not None and name != "cache"
