"""Files that are either the old or the new version, never half of one."""

from __future__ import annotations

import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any


def plain(value: Any) -> Any:
    """A copy that strict JSON can hold: NaN and infinities become null, paths text, tuples and arrays lists.

    >>> plain({"loss": float("nan"), "shape": (2, 3), 5: Path("a")})
    {'loss': None, 'shape': [2, 3], '5': 'a'}
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in (sorted(value) if isinstance(value, (set, frozenset)) else value)]
    if isinstance(value, bool) or value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "tolist"):  # numpy and torch, scalars and arrays, without importing either
        return plain(value.tolist())
    return str(value)


def json_line(value: Any) -> str:
    """One line of strict JSON.

    >>> json_line({"step": 3, "loss": float("inf")})
    '{"step": 3, "loss": null}'
    """
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)


def sync_folder(folder: Path) -> None:
    """Make renames inside ``folder`` survive a power cut (no effect where folders cannot be opened)."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    """Wait until the bytes of ``path`` have reached the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def write_text_atomic(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` in one step: a reader, or a kill, sees the old file or the new one."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())  # mkstemp makes private files; a run is as readable as its folder
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json_atomic(path: Path, obj: Any) -> None:
    """Replace ``path`` by ``obj`` as strict, indented JSON (NaN and infinities as null) in one step."""
    write_text_atomic(path, json.dumps(plain(obj), ensure_ascii=False, allow_nan=False, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """The contents of a JSON file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not JSON; the message names the file.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error


def _umask() -> int:
    # the only portable way to read it is to set it; 0o077 in between keeps other threads' files private
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
