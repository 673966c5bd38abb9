"""Ranks of this machine, led by this process: what they are told is done by all, in step, and timed on each.

Run as a module it is one of those that follow. They meet as the ranks of a run do, and exchange what those
exchange, through the same :class:`~innerloop.training.execution.group.Group`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.core.children import ends_with_parent, python_command, watch_parent
from innerloop.core.ranks import Place
from innerloop.experiment.together import END, announce, listen
from innerloop.training.execution.group import Group, join, leave
from innerloop_studies.bench.child import thread_limits
from innerloop_studies.bench.messages import Spec
from innerloop_studies.bench.worker import keep_freed_memory, own_peak_mb

Call = Callable[[], Any]
MODULE = "innerloop_studies.bench.team"


class Turn(NamedTuple):
    """What a block of calls took: seconds of every call here, and of its exchange on every rank."""

    seconds: list[float]
    exchanges: list[list[float]]
    peaks: list[float]


class Clock:
    """Adds up the time that this rank spends in exchanges, seen from inside the group."""

    def __init__(self, group: Group) -> None:
        self.spent, self._inner = 0.0, group.add_up
        group.add_up = self._add_up  # type: ignore[method-assign]

    def _add_up(self, flat: Tensor) -> None:
        start = time.perf_counter()
        self._inner(flat)
        self.spent += time.perf_counter() - start


class Member:
    """One rank: does what it is told, and times it."""

    def __init__(self, group: Group, spec: Spec) -> None:
        from innerloop_studies.bench import sides

        keep_freed_memory()
        torch.set_num_threads(1)
        self.group, self.clock = group, Clock(group)
        self.call: Call = fixed_part(spec, group.size) if spec.get("part") == "fixed" else sides.build(spec)

    def exchange(self, numbers: int) -> Call:
        """An all-reduce of this many floats, and nothing else."""
        flat = torch.zeros(numbers)
        return lambda: self.group.add_up(flat)

    def block(self, repeats: int, numbers: int = 0) -> Turn:
        """So many calls, which all ranks begin together; bare exchanges if ``numbers`` are given."""
        call = self.exchange(numbers) if numbers else self.call
        self.group.add_up(torch.zeros(1))
        seconds, exchanges = [], []
        for _ in range(repeats):
            before, start = self.clock.spent, time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
            exchanges.append(self.clock.spent - before)
        told = {"exchanges": torch.tensor(exchanges), "peak": torch.tensor(own_peak_mb(os.getpid()))}
        everybody = self.group.gather({name: value.double() for name, value in told.items()})
        by_rank = [part["exchanges"].tolist() for part in everybody]
        return Turn(seconds, by_rank, [float(part["peak"]) for part in everybody])


def fixed_part(spec: Spec, ranks: int) -> Call:
    """A step whose tasks cost nothing, at the parameters of the workload."""
    from innerloop.core.types import Batch, Buffers, Params
    from innerloop.training.execution.gradient_types import Gradient
    from innerloop.training.execution.ranks import ranked
    from innerloop_studies.bench import workloads

    work = workloads.make(spec)
    leaves = {name: value.clone().requires_grad_() for name, value in work.params.items()}
    optimiser = torch.optim.Adam(leaves.values())

    def nothing(params: Params, buffers: Buffers, batch: Batch, weights: Tensor | None = None) -> Gradient:
        """A gradient that costs nothing."""
        losses = torch.zeros(batch.size) if weights is None else weights
        return Gradient(losses, params, buffers)

    run = ranked(nothing, ranks)

    def call() -> None:
        """One step without tasks."""
        grads = run(work.params, {}, work.batch).grads
        for name, leaf in leaves.items():
            leaf.grad = grads[name]
        optimiser.step()

    return call


class Team:
    """The ranks of one spec, of which this process is the first; use as a context."""

    def __init__(self, ranks: int, spec: Spec) -> None:
        self.ranks, self.spec = ranks, spec
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Team:
        self._folder = tempfile.TemporaryDirectory(prefix="innerloop-team-")
        store = str(Path(self._folder.name) / "store")
        if sys.platform == "linux":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        environment = {**os.environ, **thread_limits(1), **ends_with_parent()}
        for rank in range(1, self.ranks):
            told = json.dumps({"rank": rank, "size": self.ranks, "store": store, "spec": self.spec})
            command = python_command("-m", MODULE, told)
            # what they print must not be taken for an answer of this process
            self.processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL))
        self.group = join(Place(0, self.ranks, 0, self.ranks, store=store))
        self.member = Member(self.group, self.spec)
        return self

    def block(self, repeats: int, numbers: int = 0) -> Turn:
        """See :meth:`Member.block`, on all ranks."""
        announce(self.group, {"kind": "block", "repeats": repeats, "numbers": numbers}, {})
        return self.member.block(repeats, numbers)

    def once(self) -> Any:
        """One call on all ranks; what it gave here."""
        announce(self.group, {"kind": "once"}, {})
        return self.member.call()

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        try:
            if failed is None:  # else they are out of step, and end when they lose the connection
                announce(self.group, {"kind": END}, {})
        finally:
            leave()
            for process in self.processes:
                try:
                    process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            self._folder.cleanup()


def follow(told: Spec) -> None:
    """A rank that does what the first announces."""
    watch_parent()
    group = join(Place(told["rank"], told["size"], told["rank"], told["size"], store=told["store"]))
    member = Member(group, told["spec"])
    while (heard := listen(group)[0])["kind"] != END:
        if heard["kind"] == "once":
            member.call()
        else:
            member.block(heard["repeats"], heard["numbers"])
    leave()


if __name__ == "__main__":
    follow(json.loads(sys.argv[1]))
