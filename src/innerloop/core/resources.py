"""Cores and memory of this machine for this process. Imports no library, so the command can start quickly."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_sharing = 1
_TRIM, _MMAP = -1, -3  # glibc's numbers of these settings
_LARGEST = 2**25  # that glibc takes for the second
_GROUPS = (  # where Linux limits the memory of a container: control groups of version 2, and of version 1
    ("/sys/fs/cgroup/memory", "max", "current"),
    ("/sys/fs/cgroup/memory/memory", "limit_in_bytes", "usage_in_bytes"),
)


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


def free_memory() -> int | None:
    """Bytes that this process may still take: the machine's, or less in a container; None where none says."""
    free = []
    with contextlib.suppress(OSError, KeyError, ValueError):
        machine = _numbers("/proc/meminfo")
        free.append(1024 * (machine["MemAvailable:"] + machine["SwapFree:"]))
    for group, limit, used in _GROUPS:
        with contextlib.suppress(OSError, KeyError, ValueError):
            kept = _numbers(f"{group}.stat")  # pages of files are given back when memory is short
            taken = _number(f"{group}.{used}") - kept["active_file"] - kept["inactive_file"]
            free.append(_number(f"{group}.{limit}") - taken)
    return min(free, default=None)


@contextlib.contextmanager
def only_free_memory() -> Iterator[None]:
    """Within it, memory that is not free is refused with an error (Linux); on leaving, all is as before."""
    # else Linux promises what it does not have, and kills the process without a word when that is used
    try:
        import resource  # here: every command imports this module, and Windows has none

        before, now = resource.getrlimit(resource.RLIMIT_DATA), _numbers("/proc/self/status")["VmData:"]
    except (ImportError, OSError, KeyError):
        yield
        return
    free = free_memory()
    limits = [before[0]] if before[0] != resource.RLIM_INFINITY else []
    limits += [] if free is None else [1024 * now + max(0, free)]
    if limits:
        resource.setrlimit(resource.RLIMIT_DATA, (min(limits), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _number(path: str) -> int:
    """The number that a file of the system holds."""
    with open(path, encoding="utf-8") as file:
        return int(file.read())


def _numbers(path: str) -> dict[str, int]:
    """The numbers of a file of the system, by the word that their line begins with."""
    with open(path, encoding="utf-8") as file:
        lines = [line.split() for line in file]
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdecimal()}
