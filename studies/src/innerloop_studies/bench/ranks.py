"""A step on several processes: ranks, workers and threads side by side, and what hundreds of ranks cost.

Run as a module (``python -m innerloop_studies.bench.ranks``) it is the child process of one side, which may
lead further ranks; with an argument it is one of those that follow. Ranks meet as those of a run do, and
exchange what those exchange, through the same :class:`~innerloop.training.execution.rank_group.RankGroup`.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from innerloop.core.child_processes import ends_with_parent, python_command, watch_parent
from innerloop.core.ranks import Rank
from innerloop.core.types import Batch, Buffers, Params
from innerloop.experiment.ranks import END, announce, listen
from innerloop.training.execution.gradient_types import Gradient
from innerloop.training.execution.rank_group import RankGroup, join, leave
from innerloop.training.execution.ranks import across_ranks
from innerloop_studies.bench import harness, maml, ranks_cost
from innerloop_studies.bench.harness import Child, Report, Row, Say, Side, Timing, busy, comparison
from innerloop_studies.bench.ranks_cost import Exchange, Link, Step
from innerloop_studies.bench.worker import Answer, Spec, keep_freed_memory, own_peak_mb, peak_mb, serve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "a MAML step on two ranks, worker processes and threads; the all-reduce; a model of its cost"
VERSION = 1
MODULE = "innerloop_studies.bench.ranks"
AT_LEAST = 1.7
"""Times one rank that two ranks on two cores must reach."""
AT_MOST = 0.05
"""Share of a step that the all-reduce may take."""
COUNT = 2
"""Ranks, worker processes or threads: one core for each."""
TASKS = 4
ONE, TWO, SOME = "one rank (loop)", "two ranks", "tasks alone: "
PEERS = (TWO, "processes", "threads")
RANK_COUNTS = (2, 4)
SIZES = (2**8, 2**14, 2**20, 2**22)
"""Floats of the exchanges that the link is fitted to, besides those of a step."""
MEDIAN_GAP = 0.4769
"""Half the median distance of two normal variables, in standard deviations of one: 0.6745 / √2."""


class Share(NamedTuple):
    """What exchanges take of a step: medians over calls."""

    exchange: float
    waiting: float
    waited_s: float


class Case(NamedTuple):
    """What was measured of one number of inner steps."""

    rows: list[Row]
    timings: dict[str, Timing]
    share: Share
    numbers: int


def share_of_steps(seconds: Sequence[float], exchanges: Sequence[Sequence[float]]) -> Share:
    """What exchanges take of steps; ``exchanges`` are seconds inside the group, by rank and call.

    >>> share_of_steps([1.0, 2.0, 1.0], [[0.125, 0.5, 0.125], [0.375, 0.25, 0.375]])
    Share(exchange=0.125, waiting=0.125, waited_s=0.125)
    """
    by_call = list(zip(*exchanges, strict=True))
    last = [min(spent) for spent in by_call]
    waited = [statistics.mean(spent) - least for spent, least in zip(by_call, last, strict=True)]
    shares = ([part / whole for part, whole in zip(parts, seconds, strict=True)] for parts in (last, waited))
    exchange, waiting = (statistics.median(values) for values in shares)
    return Share(exchange, waiting, statistics.median(waited))


def sides_of(steps: int, sizes: dict[str, int]) -> list[Side]:
    """All ways to share the tasks of a step between two cores, and fewer tasks on one."""
    base = {"workload": "conv", "side": "ours", "steps": steps, "sizes": sizes, "mode": "loop", "threads": 1}
    ways: list[Spec] = [
        {"ranks": COUNT},
        {"mode": "processes", "threads": COUNT},
        {"mode": "threads", "threads": COUNT},
    ]
    fewer = [Side(f"{SOME}{n}", {**base, "sizes": {**sizes, "tasks": n}}) for n in (TASKS // 2, 1)]
    return [
        Side(ONE, base),
        *(Side(name, {**base, **way}) for name, way in zip(PEERS, ways, strict=True)),
        *fewer,
    ]


def run(quick: bool = False, say: Say = print, sizes: dict[str, int] | None = None) -> Report:
    """Conv4-64 at 28×28, four tasks, 5 inner steps and 1; then exchanges alone, and a model of both."""
    machine = harness.machine(0.0 if quick else None)
    say(f"{machine['cpu']}, {machine['cores']} cores")
    if machine["cores"] < COUNT:
        say(f"there are fewer than {COUNT} cores: ranks share one, and no ratio here means anything")
    cases = {steps: one_case(steps, sizes or {}, quick, say) for steps in (5, 1)}
    exchanges, fixed = parts(cases[1].numbers, sizes or {}, quick)
    # ranks that share a core would be taken for a slow link
    link = ranks_cost.fitted([e for e in exchanges if e.ranks <= max(COUNT, machine["cores"])])
    models = {str(steps): model(case, link, fixed) for steps, case in cases.items()}
    return {
        "cases": [row for case in cases.values() for row in case.rows],
        "machine": machine,
        "exchanges": [exchange._asdict() for exchange in exchanges],
        "models": models,
        "summary": [
            line for steps, by_ranks in models.items() for line in ranks_cost.sentences(int(steps), by_ranks)
        ],
    }


def one_case(steps: int, sizes: dict[str, int], quick: bool, say: Say) -> Case:
    """All ways with this many inner steps, against one rank."""
    sides = sides_of(steps, sizes)
    with harness.started(sides, MODULE, environment=_limits, say=say) as together:
        whole = {name: together.results[name] for name in (ONE, *PEERS)}
        off = harness.disagreement(whole, ONE)
        turns = (3, 0.05, 0.0) if quick else (11, 0.5, None)
        measured = harness.measured(together, *turns)
        answer = together.children[TWO].ask("exchanges")
    share = share_of_steps(answer["seconds"], answer["exchanges"])
    remarks = [f"gradients differ by {off:.1g}", *busy(measured.bystanders)]
    rows = [row_of(steps, name, measured.timings, share, remarks) for name in PEERS]
    for row in rows:
        say(f"{row['case']}: {row['ratio']:.2f}× {row['peer']}; {row['notes']}")
    return Case(rows, measured.timings, share, len(whole[ONE]))


def row_of(steps: int, name: str, timings: dict[str, Timing], share: Share, remarks: Sequence[str]) -> Row:
    """One way against one rank, with what exchanges take where there are some."""
    ours, peer = timings[name], timings[ONE]
    notes = list(remarks)
    if name == TWO:
        told = f"all-reduce {100 * share.exchange:.1f} % of a step (at most {100 * AT_MOST:.0f} %)"
        notes.insert(0, f"{told}, waiting for the last rank {100 * share.waiting:.1f} %")
    at_least = AT_LEAST if name == TWO else None
    case = f"{steps} step{'s' if steps > 1 else ''}, {name}"
    row = comparison(case, ONE, ours, peer, at_least, notes)
    if name == TWO:
        row |= {"threads": f"{COUNT} × 1 / 1", "all_reduce_share": share.exchange, "at_most": AT_MOST}
        row |= {"waiting_share": share.waiting}
    return row


def parts(numbers: int, sizes: dict[str, int], quick: bool) -> tuple[list[Exchange], float]:
    """All-reduces alone, and seconds of all of a step but its tasks."""
    base = {"workload": "conv", "steps": 1, "sizes": sizes, "part": "fixed"}
    repeats, exchanges = 10 if quick else 60, []
    counts = sorted({numbers, *SIZES})
    with Child("exchanges", MODULE, harness.thread_limits(1)) as child:
        alone = child.ask("parts", spec={**base, "ranks": 1}, numbers=[0], repeats=repeats)
        for ranks in RANK_COUNTS:
            spec = {**base, "ranks": ranks}
            times = child.ask("parts", spec=spec, numbers=counts, repeats=repeats)["seconds"]
            exchanges += [
                Exchange(ranks, 4.0 * count, statistics.median(taken))
                for count, taken in zip(counts, times, strict=True)
            ]
    return exchanges, statistics.median(alone["seconds"][0])


def model(case: Case, link: Link, fixed: float) -> dict[str, Any]:
    """The cost model of a case: what it is made of, what it says of this machine, and of others."""
    timings = {TASKS: ONE, TASKS // 2: f"{SOME}{TASKS // 2}", 1: f"{SOME}1"}
    task, rest = ranks_cost.task_and_fixed({n: case.timings[name].ms / 1e3 for n, name in timings.items()})
    spread = case.share.waited_s / MEDIAN_GAP / math.sqrt(TASKS // COUNT)
    step = Step(task, max(0.0, rest) + fixed, spread, 4.0 * case.numbers)
    two = next(row for row in case.rows if row["case"].endswith(TWO))
    return {
        "step": step._asdict(),
        "link": link._asdict(),
        "measured_speed_up": {1: 1.0, COUNT: two["ratio"]},
        "extrapolated": ranks_cost.extrapolated(step, link),
    }


def _limits(side: Side) -> dict[str, str]:
    return harness.thread_limits(1 if "ranks" in side.spec else side.spec["threads"])


def figure(result: Report) -> Figure:
    """Speed-up at a fixed batch, and efficiency of one that grows."""
    from innerloop.report.plots.panels import panels_figure

    return panels_figure(ranks_cost.panels(result["models"]), width=5.2, height=4.0)


# ---- ranks of this machine: what they are told is done by all, in step, and timed on each ----


class Turn(NamedTuple):
    """What a block of calls took: seconds of every call here, and of its exchange on every rank."""

    seconds: list[float]
    exchanges: list[list[float]]
    peaks: list[float]


class Clock:
    """Adds up the time that this rank spends in exchanges, seen from inside the group."""

    def __init__(self, group: RankGroup) -> None:
        self.spent, self._inner = 0.0, group.add_up
        group.add_up = self._add_up  # type: ignore[method-assign]

    def _add_up(self, flat: Tensor) -> None:
        start = time.perf_counter()
        self._inner(flat)
        self.spent += time.perf_counter() - start


class Member:
    """One rank: does what it is told, and times it."""

    def __init__(self, group: RankGroup, spec: Spec) -> None:
        keep_freed_memory()
        torch.set_num_threads(1)
        self.group, self.clock = group, Clock(group)
        fixed = spec.get("part") == "fixed"
        self.call: Callable[[], Any] = fixed_part(spec, group.size) if fixed else maml.build(spec)

    def exchange(self, numbers: int) -> Callable[[], Any]:
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


def fixed_part(spec: Spec, ranks: int) -> Callable[[], Any]:
    """A step whose tasks cost nothing, at the parameters of the workload."""
    work = maml.workload(spec)
    leaves = {name: value.clone().requires_grad_() for name, value in work.params.items()}
    optimiser = torch.optim.Adam(leaves.values())

    def nothing(params: Params, buffers: Buffers, batch: Batch, weights: Tensor | None = None) -> Gradient:
        losses = torch.zeros(batch.size) if weights is None else weights
        return Gradient(losses, params, buffers)

    run = across_ranks(nothing, ranks)

    def call() -> None:
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
        environment = {**os.environ, **harness.thread_limits(1), **ends_with_parent()}
        for rank in range(1, self.ranks):
            told = json.dumps({"rank": rank, "size": self.ranks, "store": store, "spec": self.spec})
            command = python_command("-m", MODULE, told)
            # what they print must not be taken for an answer of this process
            self.processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL))
        self.group = join(Rank(0, self.ranks, 0, self.ranks, store=store))
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
    group = join(Rank(told["rank"], told["size"], told["rank"], told["size"], store=told["store"]))
    member = Member(group, told["spec"])
    while (heard := listen(group)[0])["kind"] != END:
        if heard["kind"] == "once":
            member.call()
        else:
            member.block(heard["repeats"], heard["numbers"])
    leave()


class RanksWorker(maml.GradientWorker):
    """Answers like the worker of meta-gradients, and leads the ranks of sides that have some."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.team: Team | None = None
        self.turns: list[Turn] = []

    def setup(self, spec: Spec, result: str | None = None) -> Answer:
        """Builds a side, runs it once, and writes its gradient to a file."""
        if "ranks" not in spec:
            return super().setup(spec, result)
        maml.build({**spec, "sizes": maml.TINY[spec["workload"]], "ranks": 1})()  # counts as libraries
        self.team = self.stack.enter_context(Team(spec["ranks"], spec))
        self.empty_mb = peak_mb()
        start = time.perf_counter()
        gradients = self.team.once()
        took = time.perf_counter() - start
        if result and self.array:
            np.save(result, self.array(gradients))
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
        with Team(spec["ranks"], spec) as team:
            team.block(3)  # warm
            return {"seconds": [team.block(repeats, count).seconds for count in numbers]}


if __name__ == "__main__":
    if sys.argv[1:]:
        follow(json.loads(sys.argv[1]))
    else:
        leader = RanksWorker()
        with leader.stack:
            serve(leader)
