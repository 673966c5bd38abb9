"""Which of several processes this one is, read from the environment. Imports no library."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import NamedTuple

LOST = 75
"""Exit code where a rank was lost: nothing is wrong with the command, and starting it again goes on."""

STORE = "INNERLOOP_RANKS_STORE"
JOB = "INNERLOOP_RANKS_JOB"
ATTEMPT = "TORCHELASTIC_RESTART_COUNT"
_OURS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", STORE, JOB)


class LostRankError(RuntimeError):
    """A process that shares the work is gone, or does not answer; says which."""

    def __init__(self, message: str, hung: bool = False) -> None:
        super().__init__(message)
        self.hung = hung


class Rank(NamedTuple):
    """One process among several that share the work of a run."""

    rank: int
    size: int
    local_rank: int = 0
    local_size: int = 1
    attempt: int = 0
    store: str | None = None
    job: str | None = None
    address: str = "localhost"
    port: int = 0
    hosted: bool = False


def take_rank(environment: MutableMapping[str, str] | None = None) -> Rank | None:
    """This process's rank, taken out of the environment: processes that it starts are no ranks."""
    variables = os.environ if environment is None else environment
    taken = {name: variables.pop(name, "") for name in _OURS}
    meets = taken[STORE] or variables.get("MASTER_PORT")
    numbers = [taken["RANK"], taken["WORLD_SIZE"]]
    if not meets or not all(number.isdecimal() for number in numbers) or int(taken["WORLD_SIZE"]) < 2:
        return None
    return Rank(
        rank=int(taken["RANK"]),
        size=int(taken["WORLD_SIZE"]),
        local_rank=int(taken["LOCAL_RANK"] or 0),
        local_size=int(taken["LOCAL_WORLD_SIZE"] or 1),
        attempt=int(variables.get(ATTEMPT) or 0),
        store=taken[STORE] or None,
        job=taken[JOB] or None,
        address=variables.get("MASTER_ADDR") or "localhost",
        port=int(variables.get("MASTER_PORT") or 0),
        hosted=variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )
