"""One pool of worker threads per size, each with one intra-op thread: cores are divided, not shared."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

A = TypeVar("A")
B = TypeVar("B")


@functools.lru_cache(maxsize=4)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "innerloop-task", initializer=torch.set_num_threads, initargs=(1,))


def forget_pools() -> None:
    """For a process that was just forked: the pools that it remembers have their threads elsewhere."""
    _pool.cache_clear()


def map_in_threads(fn: Callable[[A], B], items: Iterable[A], threads: int) -> list[B]:
    """``fn`` over ``items`` in parallel; results in the order of the items, whichever finished first."""
    grad = torch.is_grad_enabled()  # thread-local in torch: hand it on

    def run(item: A) -> B:
        """``fn`` with gradients enabled or disabled as they are in the calling thread."""
        with torch.set_grad_enabled(grad):
            return fn(item)

    return list(_pool(threads).map(run, items))
