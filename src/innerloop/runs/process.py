"""Which process works on a run, and whether it still does; a number alone does not say, it is used again."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError, fault_message
from innerloop.core.files import try_lock
from innerloop.core.resources import process_fields
from innerloop.runs.directory import refuse_links

_LARGEST = 2**31 - 1
LOCK = ".lock"
_SAID = 400  # bytes of the lock file that are read for a message


@contextlib.contextmanager
def sole_writer(run: Path) -> Iterator[bool]:
    """Holds the lock of a run while the block lasts; taken before anything in the run is read or written."""
    refuse_links(run)
    file = run / LOCK
    known = file.exists()
    try:
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise UserError(fault_message(error) or f"{run} cannot be written ({error.strerror}).") from None
    try:
        if not try_lock(handle):
            raise UserError(f"{run} is being worked on by {_holder(handle)}: wait for it, or stop it first.")
        told = json.dumps({name: identity()[name] for name in ("pid", "host")}).encode()
        with contextlib.suppress(OSError):  # a full disk: the lock holds without words
            os.ftruncate(handle, 0)
            os.pwrite(handle, told, 0) if hasattr(os, "pwrite") else os.write(handle, told)
        yield known
    finally:
        os.close(handle)


def _holder(handle: int) -> str:
    try:
        about = json.loads(os.read(handle, _SAID))
        return f"process {int(about['pid'])} on {about['host']}"
    except (OSError, ValueError, TypeError, KeyError):
        return "another process"


def identity() -> dict[str, Any]:
    """Entries of a manifest that tell this process from all others, also after a restart of the machine."""
    # process_started: ticks since the boot; None on systems that do not say
    pid = os.getpid()
    return {"pid": pid, "host": socket.gethostname(), "boot": _boot(), "process_started": _started(pid)}


def alive(manifest: Mapping[str, Any]) -> bool | None:
    """Whether the process that a manifest names still runs; None if that cannot be told."""
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
    fields = process_fields(pid)
    return int(fields[19]) if fields else None
