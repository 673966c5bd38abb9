"""MAML on pictures, 4 tasks, 5 inner steps and 1: Omniglot's shapes, and the field's canonical case."""

from __future__ import annotations

from innerloop.core.resources import available_cores
from innerloop_studies.bench.harness import Report, Say
from innerloop_studies.bench.maml import Ours, run_cases

TITLE = "MAML on pictures of 28×28 (Conv4-64) and 84×84 (Conv4-32), 4 tasks, against the same as maml-sine"
VERSION = 1


def run(quick: bool = False, say: Say = print) -> Report:
    """Ours runs whole tasks in worker processes, and in threads; one intra-op thread each."""
    cores = (available_cores(),)

    def ways(in_processes: float, in_threads: float | None = None) -> list[Ours]:
        promised = {} if in_threads is None else {"plain-loop": in_threads}
        return [
            Ours("processes", {"mode": "processes"}, {"plain-loop": in_processes}, cores),
            Ours("threads", {"mode": "threads"}, promised, cores),
        ]

    small = run_cases("conv", [(5, ways(2.0, 1.5)), (1, ways(1.6, 1.1))], quick=quick, say=say)
    # seconds a call: fewer of them, and the plain loop only. In float32 the largest of four is another one
    # for another rounding, and gradients are up to 5 % off those of float64
    large = run_cases(
        "pooled",
        [(5, ways(2.0)), (1, ways(1.6))],
        quick=quick,
        say=say,
        libraries=False,
        rounds=5,
        warm=1,
        prefix="canonical, ",
        exact={"sizes": {"tasks": 1}},
    )
    return {**small, "cases": small["cases"] + large["cases"]}
