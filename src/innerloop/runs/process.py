"""Which process works on a run, and whether it still does; a number alone does not say, it is used again."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LARGEST = 2**31 - 1


def identity() -> dict[str, Any]:
    """Entries of a manifest that tell this process from all others, also after a restart of the machine.

    ``process_started`` counts ticks since the boot; both are None on systems that do not say.
    """
    pid = os.getpid()
    return {"pid": pid, "host": socket.gethostname(), "boot": _boot(), "process_started": _started(pid)}


def alive(manifest: Mapping[str, Any]) -> bool | None:
    """Whether the process that a manifest names still runs; None if that cannot be told.

    Runs of earlier versions kept the number only: a process of that number that began after the manifest was
    written last is another one, which only :func:`innerloop.runs.lock.sole_writer` can know.
    """
    pid = manifest.get("pid")
    if not isinstance(pid, int) or isinstance(pid, bool):
        return None
    if not 0 < pid <= _LARGEST:
        return False
    if manifest.get("host") not in (None, socket.gethostname()):
        return None
    if _differ(manifest.get("boot"), _boot()):
        return False
    if not _exists(pid):
        return False
    return not _differ(manifest.get("process_started"), _started(pid))


def _exists(pid: int) -> bool:
    if os.name != "posix":  # there, signal 0 would end it
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def _differ(recorded: Any, now: Any) -> bool:
    return recorded is not None and now is not None and recorded != now


def _boot() -> str | None:
    """A name for the time since the machine was started."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None


def _started(pid: int) -> int | None:
    try:
        about = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(about.rpartition(")")[2].split()[19])  # a program's name may hold spaces and brackets
    except (OSError, ValueError, IndexError):
        return None
