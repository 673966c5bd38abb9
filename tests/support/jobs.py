"""Jobs that tests hand to other processes, which look them up by name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import torch

from innerloop.core.errors import UserError
from oracles.patience import wait_until


def sums(seed: int) -> tuple[float, int, str]:
    """A number that depends on how many threads add it up, its process and its folder."""
    values = torch.rand(200_000, generator=torch.Generator().manual_seed(seed))
    return float(values.sum()), torch.get_num_threads(), os.getcwd()


def process_number(_: int) -> int:
    return os.getpid()


def dies_once(there: str) -> str:
    """Ends its process with SIGKILL, the first time."""
    mark = Path(there)
    if not mark.exists():
        mark.write_text("died")
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def dies(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def waits(there: str) -> str:
    """Says which process it is, and waits for a file."""
    folder = Path(there)
    (folder / f"began-{time.monotonic_ns()}").write_text(str(os.getpid()))
    wait_until((folder / "go").exists)
    return "done"


def refuses(number: int) -> None:
    raise UserError(f"{number} is not wanted.")
