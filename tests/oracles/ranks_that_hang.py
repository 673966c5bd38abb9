"""Four ranks, one of which stops answering; each prints what it makes of that."""

from __future__ import annotations

import os
import sys
import time

import torch

from innerloop.core.ranks import LostRankError, Rank
from innerloop.training.execution.rank_group import join


def main(rank: int, size: int, store: str, silent: int, late: int) -> None:
    group = join(Rank(rank, size, store=store))
    group.timeout = 8.0
    numbers = torch.tensor([float(rank)])
    group.add_up(numbers)
    assert float(numbers) == sum(range(size))
    if rank == silent:
        time.sleep(3600)
    time.sleep(6.5 * (rank == late))  # later than the others wait for signs of life, and not hung
    try:
        group.add_up(numbers)
    except LostRankError as error:
        sys.stdout.write(f"{rank}: {error}\n")
        sys.stdout.flush()
        os._exit(0)  # the usual end would wait for the exchange


if __name__ == "__main__":
    first, *others = sys.argv[1:]
    main(int(first), int(others[0]), others[1], int(others[2]), int(others[3]))
