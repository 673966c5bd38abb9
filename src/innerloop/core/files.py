"""Files that are either the old or the new version, never half of one."""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError, fault_message


def plain(value: Any) -> Any:
    """A copy that strict JSON can hold: no NaN, no infinities (null), paths as text, arrays as lists."""
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


def json_line(value: Any, encoding: str = "utf-8") -> str:
    """One line of strict JSON, in characters that ``encoding`` has; others are written as escapes."""
    return _as_json(plain(value), encoding)


def _as_json(value: Any, encoding: str = "utf-8", indent: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):  # also names of files that are not text at all
        return json.dumps(value, ensure_ascii=True, allow_nan=False, indent=indent)
    return text


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
    with _complete(path, text) as name:
        os.replace(name, path)
    sync_folder(path.parent)


@contextlib.contextmanager
def _complete(path: Path, text: str) -> Iterator[str]:
    """The name of a whole and synced file beside ``path``, to be given its own name; gone if it is not."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~umask())  # mkstemp makes private files; a run is as readable as its folder
        yield name
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_json_atomic(path: Path, obj: Any) -> None:
    """Replace ``path`` by ``obj`` as strict, indented JSON (NaN and infinities as null) in one step."""
    write_text_atomic(path, _as_json(plain(obj), indent=2) + "\n")


def write_json_new(names: Iterable[Path], obj: Any) -> Path:
    """Write ``obj`` as JSON under the first of some names that is free, and return it; replaces nothing."""
    # two processes that do this at once get two names: the system gives a name once
    text = _as_json(plain(obj), indent=2) + "\n"
    for path in names:
        if path.exists():
            continue
        with _complete(path, text) as name:
            if _named(name, path):
                sync_folder(path.parent)
                return path
    raise FileExistsError("all names are taken")


def _named(name: str, path: Path) -> bool:
    """Gives a file the name ``path``, unless there is one of that name; its own name is gone in any case."""
    try:
        os.link(name, path)
    except FileExistsError:
        return False
    except OSError:  # a disk without hard links: there is a moment between the look and the rename
        if path.exists():
            return False
        os.replace(name, path)
        return True
    finally:
        Path(name).unlink(missing_ok=True)
    return True


class DamagedFileError(UserError, ValueError):
    """A file that we wrote is not what we wrote: one sentence that names it."""


def read_json(path: Path) -> Any:
    """The contents of a JSON file, whatever became of it."""
    text = read_plain_file(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise DamagedFileError(f"{path} is not valid JSON: {reason}") from error


def read_object(path: Path) -> dict[str, Any]:
    """As :func:`read_json`, for a file that holds an object."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise DamagedFileError(f"{path} does not hold an object. Was it edited by hand?")
    return content


def read_plain_file(path: Path) -> bytes:
    """The bytes of a file; what would wait for ever when it is opened (a pipe) is not opened."""
    check_plain_file(path)
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unreadable(path, error) from None


def check_plain_file(path: Path) -> None:
    """Refuses what is no file; raises as :func:`read_plain_file`."""
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if not stat.S_ISREG(kind):
        what = "a folder" if stat.S_ISDIR(kind) else "a pipe or a device"
        raise DamagedFileError(f"{path} is {what}, not a file: move it away")


def _unreadable(path: Path, error: Exception) -> DamagedFileError:
    return DamagedFileError((fault_message(error) or f"{path} cannot be read ({error})").rstrip("."))


def umask() -> int:
    """Permissions that new files of this process do not get."""
    # the only portable way to read it is to set it; 0o077 in between keeps other threads' files private
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def try_lock(handle: int) -> bool:
    """Takes the lock of an open file, if nobody has it; it is held until the file is closed."""
    try:
        import fcntl
    except ImportError:
        return _locked_on_windows(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _locked_on_windows(handle: int) -> bool:
    if sys.platform == "win32":
        import msvcrt

        try:  # far behind what is written into the file, which others may then still read
            os.lseek(handle, 1 << 20, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(handle, 0, os.SEEK_SET)
    return True
