"""Ranks as threads of one process: what they exchange is added up in the open, in the order of the ranks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from torch import Tensor

from innerloop.training.execution import ranks

Out = TypeVar("Out")


class ThreadGroup:
    """What :class:`~innerloop.training.execution.rank_group.RankGroup` does, for threads with a table."""

    def __init__(self, rank: int, size: int, table: list[Any], barrier: threading.Barrier) -> None:
        self.rank, self.size, self._table, self._barrier = rank, size, table, barrier

    def _swap(self, mine: Any) -> list[Any]:
        self._table[self.rank] = mine
        self._barrier.wait(60)
        everybody = list(self._table)
        self._barrier.wait(60)
        return everybody

    def add_up(self, flat: Tensor) -> None:
        flat.copy_(sum(self._swap(flat.clone())))

    def gather(self, tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        return self._swap(tensors)


def in_ranks(size: int, work: Callable[[int], Out], patch: pytest.MonkeyPatch) -> list[Out]:
    """``work(rank)`` on every rank at once; what each gave."""
    table: list[Any] = [None] * size
    barrier, here = threading.Barrier(size), threading.local()
    patch.setattr(ranks, "group_of", lambda wanted: here.group)

    def run(rank: int) -> Out:
        here.group = ThreadGroup(rank, size, table, barrier)
        try:
            return work(rank)
        except BaseException:
            barrier.abort()  # or the others would wait for it
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run, rank) for rank in range(size)]
        errors = [future.exception() for future in futures]
        for error in errors:
            if error is not None and not isinstance(error, threading.BrokenBarrierError):
                raise error
        return [future.result() for future in futures]
