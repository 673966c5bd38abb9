"""Plain data between ranks: what JSON can say, of jobs that are too uneven for tensors."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.training.execution.group import group_of
from innerloop.training.execution.ranks import AllRanksError, shared_out

A = TypeVar("A")


def plain_out(
    work: Callable[[list[A]], list[Any]], items: Sequence[A], ranks: int, together: int | None = None
) -> list[Any]:
    """:func:`~innerloop.training.execution.ranks.shared_out` for work whose results are plain data.

    Numbers arrive bit by bit, infinite ones too.

    >>> plain_out(lambda numbers: [{"square": n * n} for n in numbers], [3, 4], 1)
    [{'square': 9}, {'square': 16}]
    """
    if ranks == 1 or not items:
        return work(list(items))
    whole = -(-len(items) // ranks)
    results = shared_out(
        lambda mine: [(as_bytes(each),) for each in work(mine)], items, ranks, together or whole
    )
    return [from_bytes(each) for (each,) in results]


def from_leader(make: Callable[[], Any], ranks: int) -> Any:
    """What rank 0 makes, on all ranks; the others wait for it.

    >>> from_leader(lambda: {"steps": 3}, 1)
    {'steps': 3}
    """
    if ranks == 1:
        return make()
    group = group_of(ranks)
    told: dict[str, Tensor] = {}
    if group.rank == 0:
        try:
            told = {"made": as_bytes(make())}
        except UserError as error:
            told = {"error": as_bytes(str(error))}
    heard = group.gather(told)[0]
    if "error" in heard:
        raise AllRanksError(from_bytes(heard["error"]))
    return from_bytes(heard["made"])


def as_bytes(plain: Any) -> Tensor:
    """Plain data as a tensor.

    >>> from_bytes(as_bytes([float("inf"), 0.1]))
    [inf, 0.1]
    """
    return torch.frombuffer(bytearray(json.dumps(plain).encode()), dtype=torch.uint8)


def from_bytes(content: Tensor) -> Any:
    """What :func:`as_bytes` was given."""
    return json.loads(content.numpy().tobytes())
