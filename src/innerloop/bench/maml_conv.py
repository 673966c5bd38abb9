"""MAML on pictures: Conv4-64 with strides, 28×28, 5-way 1-shot 15-query, 4 tasks, 5 inner steps and 1."""

from __future__ import annotations

from typing import Any

from innerloop.bench.harness import Say
from innerloop.bench.maml import Ours, run_cases
from innerloop.execution.plan import available_cores


def run(quick: bool = False, say: Say = print) -> dict[str, Any]:
    """Ours runs whole tasks in threads, one intra-op thread each."""
    cores = (available_cores(),)
    cases = [
        (5, [Ours("threads", {"mode": "threads"}, {"plain-loop": 1.5}, cores)]),
        (1, [Ours("threads", {"mode": "threads"}, {"plain-loop": 1.1}, cores)]),
    ]
    return run_cases("conv", cases, quick=quick, say=say)
