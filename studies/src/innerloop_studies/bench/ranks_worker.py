"""The child process of a side of ``bench ranks``: one that may have further ranks."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from innerloop_studies.bench.messages import Answer, Spec
from innerloop_studies.bench.worker import TINY, Worker, peak_mb, serve

if TYPE_CHECKING:
    from innerloop_studies.bench.team import Team, Turn

MODULE = "innerloop_studies.bench.ranks_worker"


class RanksWorker(Worker):
    """Answers like the common worker, and leads the ranks of sides that have some."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.team: Team | None = None
        self.turns: list[Turn] = []

    def setup(self, spec: Spec, gradient: str | None = None) -> Answer:
        """Builds a side, runs it once, and writes its gradient to a file."""
        if "ranks" not in spec:
            return super().setup(spec, gradient)
        import numpy as np

        from innerloop_studies.bench import sides
        from innerloop_studies.bench.team import Team

        sides.build({**spec, "sizes": TINY[spec["workload"]], "ranks": 1})()  # counts as libraries
        self.team = self.stack.enter_context(Team(spec["ranks"], spec))
        self.empty_mb = peak_mb()
        start = time.perf_counter()
        gradients = self.team.once()
        took = time.perf_counter() - start
        if gradient:
            np.save(
                gradient, np.concatenate([gradients[name].double().flatten() for name in sorted(gradients)])
            )
        return {"first_call_s": took}

    def block(self, repeats: int) -> Answer:
        """Times single calls; of ranks also their exchanges, for :meth:`exchanges`."""
        if self.team is None:
            return super().block(repeats)
        turn = self.team.block(repeats)
        self.turns.append(turn)
        pids = [os.getpid(), *(process.pid for process in self.team.processes)]
        used = {"peak_mb": peak_mb() + sum(turn.peaks[1:]), "empty_mb": self.empty_mb}
        return {"seconds": turn.seconds, **used, "pids": pids}

    def exchanges(self) -> Answer:
        """Of all calls that were timed: seconds of each, and of its exchange on every rank."""
        by_rank = zip(*(turn.exchanges for turn in self.turns), strict=True)
        return {
            "seconds": [value for turn in self.turns for value in turn.seconds],
            "exchanges": [[value for part in parts for value in part] for parts in by_rank],
        }

    def parts(self, spec: Spec, numbers: list[int], repeats: int) -> Answer:
        """Seconds of each call of a team of its own, by ``numbers`` (:meth:`Member.block`)."""
        from innerloop_studies.bench.team import Team

        with Team(spec["ranks"], spec) as team:
            team.block(3)  # warm
            return {"seconds": [team.block(repeats, count).seconds for count in numbers]}


if __name__ == "__main__":
    worker = RanksWorker()
    with worker.stack:
        serve(worker)
