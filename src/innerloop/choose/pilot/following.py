"""A search on several ranks: all of them carry it out together, and share its measurements and trainings.

Rank 0 decides, writes and talks. Candidates keep their own results in the run's directory, so all ranks must
see it: on several machines it lies on a file system that they share.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

import innerloop.experiment.following as following
from innerloop.choose.pilot.keep import KIND, Sitting, check_pictures, reopened
from innerloop.choose.pilot.problem import pose
from innerloop.choose.pilot.run import answer
from innerloop.core.cores import available_cores
from innerloop.core.errors import UserError
from innerloop.experiment.together import IN_STEP, at_work
from innerloop.experiment.words import recipe_words
from innerloop.runs.directory import MANIFEST
from innerloop.runs.progress import Progress
from innerloop.training.execution.group import Group


def carry_out(group: Group, told: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """One call of rank 0, of a run or of a search."""
    if told["kind"] != KIND:
        following.carry_out(group, told, tensors)
        return
    group.timeout = told["timeout"]
    try:
        with at_work(group):
            take_part(group, Path(told["run"]), told["workers"])
    except IN_STEP:
        pass


@recipe_words()
def take_part(group: Group, run: Path, workers: int | None) -> None:
    """Carries out the search of a run beside rank 0."""
    if not (run / MANIFEST).is_file():
        raise UserError(
            f"{socket.gethostname()} does not see {run}: put {{folder}} on a file system that all machines "
            "share.",
            names=("folder",),
        )
    asked, _ = reopened(run, trust=True, alone=True)  # rank 0 has looked whether its code is trusted
    problem = pose(asked)
    check_pictures(run, problem.draws.source)
    hands = workers or available_cores()
    silent = Sitting(run, hands, 0.0, lambda: 0.0, lambda _: None, uncounted, group.size, leads=False)
    answer(problem, asked, silent)


@contextmanager
def uncounted(total: int, unit: str) -> Iterator[Progress]:
    """The progress of a rank that says nothing."""
    yield Progress(total, unit, 0, None, None, None)
