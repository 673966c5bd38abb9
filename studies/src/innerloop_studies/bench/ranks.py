"""A step on several processes: ranks, workers and threads side by side, and what hundreds of ranks cost."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from innerloop_studies.bench import harness
from innerloop_studies.bench.child import Child, thread_limits
from innerloop_studies.bench.cost_model import Exchange, Link, Step, fitted, task_and_fixed
from innerloop_studies.bench.cost_table import cost_panels, extrapolated, sentences
from innerloop_studies.bench.harness import Say
from innerloop_studies.bench.messages import Spec
from innerloop_studies.bench.ranks_worker import MODULE
from innerloop_studies.bench.report_parts import CostModel
from innerloop_studies.bench.rows import Report, Row, Side, Timing, busy, comparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WHAT = "a MAML step on two ranks, worker processes and threads; the all-reduce; a model of its cost"
VERSION = 1

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
    link = fitted([e for e in exchanges if e.ranks <= max(COUNT, machine["cores"])])
    models = {str(steps): model(case, link, fixed) for steps, case in cases.items()}
    return {
        "cases": [row for case in cases.values() for row in case.rows],
        "machine": machine,
        "exchanges": [exchange._asdict() for exchange in exchanges],
        "models": models,
        "summary": [line for steps, by_ranks in models.items() for line in sentences(int(steps), by_ranks)],
    }


def one_case(steps: int, sizes: dict[str, int], quick: bool, say: Say) -> Case:
    """All ways with this many inner steps, against one rank."""
    sides = sides_of(steps, sizes)
    with harness.started(sides, MODULE, environment=_limits, say=say) as together:
        whole = {name: together.results[name] for name in (ONE, *PEERS)}
        off = harness.disagreement(whole, ONE)
        turns = (3, 0.05, 0.0) if quick else (11, 0.5, None)
        measurement = harness.measured(together, *turns)
        answer = together.children[TWO].ask("exchanges")
    share = share_of_steps(answer["seconds"], answer["exchanges"])
    remarks = [f"gradients differ by {off:.1g}", *busy(measurement.bystanders)]
    rows = [row_of(steps, name, measurement.timings, share, remarks) for name in PEERS]
    for row in rows:
        say(f"{row['case']}: {row['ratio']:.2f}× {row['peer']}; {row['notes']}")
    return Case(rows, measurement.timings, share, len(whole[ONE]))


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
    with Child("exchanges", MODULE, thread_limits(1)) as child:
        alone = child.ask("parts", spec={**base, "ranks": 1}, numbers=[0], repeats=repeats)
        for ranks in RANK_COUNTS:
            spec = {**base, "ranks": ranks}
            times = child.ask("parts", spec=spec, numbers=counts, repeats=repeats)["seconds"]
            exchanges += [
                Exchange(ranks, 4.0 * count, statistics.median(taken))
                for count, taken in zip(counts, times, strict=True)
            ]
    return exchanges, statistics.median(alone["seconds"][0])


def model(case: Case, link: Link, fixed: float) -> CostModel:
    """The cost model of a case: what it is made of, what it says of this machine, and of others."""
    timings = {TASKS: ONE, TASKS // 2: f"{SOME}{TASKS // 2}", 1: f"{SOME}1"}
    task, rest = task_and_fixed({n: case.timings[name].ms / 1e3 for n, name in timings.items()})
    spread = case.share.waited_s / MEDIAN_GAP / math.sqrt(TASKS // COUNT)
    step = Step(task, max(0.0, rest) + fixed, spread, 4.0 * case.numbers)
    two = next(row for row in case.rows if row["case"].endswith(TWO))
    return {
        "step": step._asdict(),
        "link": link._asdict(),
        "measured_speed_up": {1: 1.0, COUNT: two["ratio"]},
        "extrapolated": extrapolated(step, link),
    }


def _limits(side: Side) -> dict[str, str]:
    return thread_limits(1 if "ranks" in side.spec else side.spec["threads"])


def figure(result: Report) -> Figure:
    """Speed-up at a fixed batch, and efficiency of one that grows."""
    from innerloop.report.plots.panels import panels_figure

    return panels_figure(cost_panels(result["models"]), width=5.2, height=4.0)
