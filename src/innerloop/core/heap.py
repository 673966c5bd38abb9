"""Memory that is freed and soon needed again."""

from __future__ import annotations

import ctypes

_TRIM, _MMAP = -1, -3  # glibc's numbers of these settings
_LARGEST = 2**25  # that glibc takes for the second


def keep_freed_memory() -> bool:
    """Lets a worker process keep the memory that it frees, for its next task, instead of returning it.

    A kernel of a supernet holds hundreds of megabytes for a second. Getting fresh pages from the system costs
    up to a fifth of its time. For processes of our own that do such work over and over; the memory is
    returned when they end.
    """
    try:
        library = ctypes.CDLL(None)
        told = [library.mallopt(_TRIM, 2**31 - 1), library.mallopt(_MMAP, _LARGEST)]
    except (AttributeError, OSError, TypeError):  # another system, or another C library
        return False
    return all(told)
