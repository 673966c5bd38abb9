"""Keeps finished parts of a long reproduction, so that an interrupted one goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from innerloop._version import __version__
from innerloop.runs.files import plain, read_json, write_json_atomic

FOLDER = Path("runs") / "reproduce-parts"


def remembered(
    name: str, key: Mapping[str, Any], compute: Callable[[], Any], folder: Path | None = None
) -> Any:
    """``compute()`` as plain data, or what it gave before for the same name, key and version.

    Args:
        name: of the reproduction.
        key: every setting the value depends on.
        compute: makes the value; it comes back as JSON would hold it.
        folder: where parts are kept; ``runs/reproduce-parts`` if omitted.

    >>> import tempfile, itertools
    >>> count = itertools.count()
    >>> with tempfile.TemporaryDirectory() as there:
    ...     [remembered("x", {"seed": 0}, lambda: next(count), Path(there)) for _ in range(2)]
    [0, 0]
    """
    text = json.dumps({"version": __version__, **plain(dict(key))}, sort_keys=True)
    file = (folder or FOLDER) / name / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if file.is_file():
        found = read_json(file)
        if found.get("key") == json.loads(text):
            return found["value"]
    value = plain(compute())
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(file, {"key": json.loads(text), "value": value})
    return value
