"""Cores and memory of this machine for this process. Imports no library, so the command can start quickly."""

from __future__ import annotations

import os

_sharing = 1
_TRIM, _MMAP = -1, -3  # glibc's numbers of these settings
_LARGEST = 2**25  # that glibc takes for the second


def available_cores() -> int:
    """Cores this process may use: its affinity, which containers and schedulers set."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        cores = os.cpu_count() or 1
    return max(1, cores // _sharing)


def divide_cores(among: int) -> None:
    """Says that this many processes share this machine's cores evenly, this one among them."""
    global _sharing
    _sharing = among


def process_fields(pid: int) -> list[str] | None:
    """What Linux says of a process behind its name (``/proc/PID/stat``, fields 3 on); None if nothing."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()  # a name may hold spaces and brackets
    except (OSError, ValueError):
        return None


def keep_freed_memory() -> bool:
    """Lets a worker process keep the memory that it frees, for its next task, instead of returning it."""
    # fresh pages from the system cost up to a fifth of the time of a supernet's kernel
    import ctypes  # here: every command imports this module

    try:
        library = ctypes.CDLL(None)
        told = [library.mallopt(_TRIM, 2**31 - 1), library.mallopt(_MMAP, _LARGEST)]
    except (AttributeError, OSError, TypeError):  # another system, or another C library
        return False
    return all(told)
