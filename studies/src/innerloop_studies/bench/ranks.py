"""A step on several processes: ranks, workers and threads side by side, and what hundreds of ranks cost."""

import atexit
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from innerloop.core.ranks import Rank
from innerloop.core.resources import keep_freed_memory
from innerloop.core.types import Batch, Buffers, Params
from innerloop.training.execution.gradient_types import Gradient
from innerloop.training.execution.rank_group import RankGroup, join, leave
from innerloop.training.execution.ranks import across_ranks
from innerloop_studies.bench import harness, maml, ranks_cost
from innerloop_studies.bench.harness import Child, Comparison, Measured, Report, Say, Side
from innerloop_studies.bench.worker import Answer, Spec, flat, own_peak_mb, peak_mb

TITLE = "a MAML step on two ranks, worker processes and threads; the all-reduce; a model of its cost"
VERSION = 1
AT_LEAST = 1.7  # times one rank that two ranks on two cores must reach
AT_MOST = 0.05  # share of a step that the all-reduce may take
COUNT = 2  # ranks, worker processes or threads: one core for each
TASKS = 4
ONE, TWO, SOME = "one rank (loop)", "two ranks", "tasks alone: "
PEERS = (TWO, "processes", "threads")
RANK_COUNTS = (2, 4)
SIZES = (2**8, 2**14, 2**20, 2**22)  # floats of the exchanges that the link is fitted to, besides a step's
MEDIAN_GAP = 0.4769  # half the median distance of two normal variables, in deviations of one: 0.6745 / √2


class Share(NamedTuple):
    """What exchanges take of a step: medians over calls."""

    exchange: float
    waiting: float
    waited_s: float


class StepTimings(NamedTuple):
    """What was measured of one number of inner steps; ``numbers`` are those that ranks exchange."""

    rows: list[Comparison]
    ms: dict[str, float]
    share: Share
    numbers: int


def share_of_steps(seconds: Sequence[float], exchanges: Sequence[Sequence[float]]) -> Share:
    """What exchanges take of steps; ``exchanges`` are seconds inside the group, by rank and call."""
    by_call = list(zip(*exchanges, strict=True))
    last = [min(spent) for spent in by_call]
    waited = [statistics.mean(spent) - least for spent, least in zip(by_call, last, strict=True)]
    shares = ([part / whole for part, whole in zip(parts, seconds, strict=True)] for parts in (last, waited))
    exchange, waiting = (statistics.median(values) for values in shares)
    return Share(exchange, waiting, statistics.median(waited))


def sides_of(steps: int, sizes: dict[str, int]) -> list[Side]:
    """All ways to share the tasks of a step between two cores, and fewer tasks on one."""
    base = {"workload": "conv", "side": "ours", "steps": steps, "sizes": sizes, "mode": "loop", "threads": 1}
    ways: dict[str, Spec] = {ONE: {}, TWO: {"ranks": COUNT}}
    ways |= {mode: {"mode": mode, "threads": COUNT} for mode in PEERS[1:]}
    ways |= {f"{SOME}{n}": {"sizes": {**sizes, "tasks": n}} for n in (TASKS // 2, 1)}
    return [Side(name, {**base, **way}) for name, way in ways.items()]


def run(quick: bool = False, say: Say = print, sizes: dict[str, int] | None = None) -> Report:
    """Conv4-64 at 28×28, four tasks, 5 inner steps and 1; then exchanges alone, and a model of both."""
    machine = harness.machine(quick)
    say(f"{machine['cpu']}, {machine['cores']} cores")
    if machine["cores"] < COUNT:
        say(f"there are fewer than {COUNT} cores: ranks share one, and no ratio here means anything")
    cases = {steps: one_case(steps, sizes or {}, quick, say) for steps in (5, 1)}
    exchanges, fixed = parts(cases[1].numbers, sizes or {}, quick)
    # ranks that share a core would be taken for a slow link
    link = ranks_cost.fitted([e for e in exchanges if e.ranks <= max(COUNT, machine["cores"])])
    models = {str(steps): model(case, link, fixed) for steps, case in cases.items()}
    rows = [row for case in cases.values() for row in case.rows]
    said = [line for steps, each in models.items() for line in ranks_cost.sentences(int(steps), each)]
    kept = [exchange._asdict() for exchange in exchanges]
    return {"cases": rows, "machine": machine, "exchanges": kept, "models": models, "summary": said}


def one_case(steps: int, sizes: dict[str, int], quick: bool, say: Say) -> StepTimings:
    """All ways with this many inner steps, against one rank."""
    with harness.started(sides_of(steps, sizes), __name__, say, child_of) as together:
        whole = {name: together.results[name] for name in (ONE, *PEERS)}
        off = harness.disagreement(whole, ONE)
        measured = together.measured(quick, (3, 0.05), (11, 0.5))
        team = together.children[TWO]
    share = share_of_steps(team.seconds, team.exchanges)
    rows = [row_of(steps, name, measured, share, [f"gradients differ by {off:.1g}"]) for name in PEERS]
    return StepTimings(rows, {name: one.ms for name, one in measured.timings.items()}, share, len(whole[ONE]))


def row_of(steps: int, name: str, measured: Measured, share: Share, remarks: Sequence[str]) -> Comparison:
    """One way against one rank, with what exchanges take where there are some."""
    case = f"{steps} step{'s' if steps > 1 else ''}, {name}"
    if name != TWO:
        return measured.row(case, ONE, None, remarks, ours=name)
    told = f"all-reduce {100 * share.exchange:.1f} % of a step (at most {100 * AT_MOST:.0f} %)"
    notes = [f"{told}, waiting for the last rank {100 * share.waiting:.1f} %", *remarks]
    row = measured.row(case, ONE, AT_LEAST, notes, ours=name)
    row |= {"threads": f"{COUNT} × 1 / 1", "all_reduce_share": share.exchange, "at_most": AT_MOST}
    return row | {"waiting_share": share.waiting}


def parts(numbers: int, sizes: dict[str, int], quick: bool) -> tuple[list[ranks_cost.Exchange], float]:
    """All-reduces alone, and seconds of all of a step but its tasks."""
    spec = {"workload": "conv", "steps": 1, "sizes": sizes}
    repeats, exchanges, fixed = 10 if quick else 60, [], 0.0
    for ranks in (1, *RANK_COUNTS):
        with Team("exchanges", ranks, harness.thread_limits(1)) as team:
            team.ask("fixed", spec=spec)
            team.ask("block", repeats=3)  # warm
            if ranks == 1:
                fixed = statistics.median(team.ask("block", repeats=repeats)["seconds"])
            for count in sorted({numbers, *SIZES}) if ranks > 1 else ():
                taken = team.ask("block", repeats=repeats, numbers=count)["seconds"]
                exchanges.append(ranks_cost.Exchange(ranks, 4.0 * count, statistics.median(taken)))
    return exchanges, fixed


def model(case: StepTimings, link: ranks_cost.Link, fixed: float) -> dict[str, Any]:
    """The cost model of a case: what it is made of, what it says of this machine, and of others."""
    timings = {TASKS: ONE, TASKS // 2: f"{SOME}{TASKS // 2}", 1: f"{SOME}1"}
    task, rest = ranks_cost.task_and_fixed({n: case.ms[name] / 1e3 for n, name in timings.items()})
    spread = case.share.waited_s / MEDIAN_GAP / math.sqrt(TASKS // COUNT)
    step = ranks_cost.Step(task, max(0.0, rest) + fixed, spread, 4.0 * case.numbers)
    two = next(row for row in case.rows if row["case"].endswith(TWO))
    seen, far = {1: 1.0, COUNT: two["ratio"]}, ranks_cost.extrapolated(step, link)
    return {"step": step._asdict(), "link": link._asdict(), "measured_speed_up": seen, "extrapolated": far}


def figure(result: Report) -> Any:
    """Speed-up at a fixed batch, and efficiency of one that grows."""
    from innerloop.report.plots.panels import panels_figure

    return panels_figure(ranks_cost.panels(result["models"]), width=5.2, height=4.0)


# ---- ranks of this machine: what they are asked is done by all, in step, and timed on each ----


class Team:
    """A child for every rank, all asked the same; answers are the first's, with what the others measured."""

    def __init__(self, name: str, ranks: int, environment: dict[str, str]) -> None:
        self.seconds: list[float] = []
        self.exchanges: list[list[float]] = [[] for _ in range(ranks)]
        self.stack = ExitStack()
        store = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="innerloop-team-")), "store")
        children = [Child(f"{name}, rank {rank}", __name__, environment) for rank in range(ranks)]
        self.children = [self.stack.enter_context(child) for child in children]
        self.process = self.children[0].process
        for rank, child in enumerate(self.children):
            child.send("meet", rank=rank, size=ranks, store=str(store))
        for child in self.children:
            child.receive()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failed: Any) -> None:
        for child in self.children:
            if child.process.stdin:
                child.process.stdin.close()  # all end now
        self.stack.__exit__(*failed)

    def ask(self, do: str, **request: Any) -> Answer:
        """One request to all ranks; of blocks, memory is added up and exchanges are kept by rank."""
        for child in self.children:
            child.send(do, **request)
            request.pop("result", None)  # the first has written it
        first, *others = answers = [child.receive() for child in self.children]
        if do == "block":
            first["peak_mb"] += sum(answer["own_mb"] for answer in others)
            first["pids"] = [child.process.pid for child in self.children]
            self.seconds += first["seconds"]
            for kept, answer in zip(self.exchanges, answers, strict=True):
                kept += answer["exchanges"]
        return first


def child_of(side: Side, module: str, environment: dict[str, str]) -> Child | Team:
    """The process of a side, or its ranks."""
    if "ranks" in side.spec:
        return Team(side.name, side.spec["ranks"], environment)
    return Child(side.name, module, environment)


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


class RanksWorker(maml.GradientWorker):
    """Answers like the worker of meta-gradients, perhaps as a rank among others that are asked the same."""

    group: RankGroup | None = None

    def meet(self, rank: int, size: int, store: str) -> Answer:
        """Meets the others."""
        if sys.platform == "linux":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        self.group = join(Rank(rank, size, rank, size, store=store))
        self.spent, add_up = 0.0, self.group.add_up

        def timed(flat: Tensor) -> None:
            start = time.perf_counter()
            add_up(flat)
            self.spent += time.perf_counter() - start

        self.group.add_up = timed  # type: ignore[method-assign]
        atexit.register(leave)
        return {}

    def fixed(self, spec: Spec) -> Answer:
        """Takes all of a step but its tasks for what is timed."""
        assert self.group is not None
        keep_freed_memory()
        torch.set_num_threads(1)
        self.call = fixed_part(spec, self.group.size)
        return {}

    def block(self, repeats: int, numbers: int = 0) -> Answer:
        """Times single calls, which all ranks begin together; bare all-reduces if ``numbers`` are given."""
        if self.group is None:
            return super().block(repeats)
        flat, group = torch.zeros(numbers), self.group
        call = (lambda: group.add_up(flat)) if numbers else self.call
        group.add_up(torch.zeros(1))
        seconds, exchanges = [], []
        for _ in range(repeats):
            before, start = self.spent, time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
            exchanges.append(self.spent - before)
        memory = {"peak_mb": peak_mb(), "own_mb": own_peak_mb(os.getpid()), "empty_mb": self.empty_mb}
        return {"seconds": seconds, "exchanges": exchanges, **memory}


WORKER = RanksWorker(maml.build, flat, maml.small)
