"""MAML on Conv4-64 with strides at 28×28, 5-way 1-shot 15-query, 4 tasks."""

from __future__ import annotations

from typing import Any

from innerloop.bench.flops import count_flops
from innerloop.bench.harness import Say, Side, alternate, better, case_row
from innerloop.bench.machine import machine
from innerloop.bench.peers import installed
from innerloop.execution.plan import available_cores

AT_LEAST = {5: 1.5, 1: 1.1}
MEMORY_AT_MOST = 1.5


def run(*, quick: bool, say: Say) -> dict[str, Any]:
    """Task threads against all peers, for one and five inner steps."""
    about = machine(quick)
    cases: list[dict[str, Any]] = []
    for steps in (1,) if quick else (5, 1):
        say(f"MAML, Conv4-64, 28×28, 4 tasks, {steps} inner step{'s' * (steps > 1)}")
        cases += _cases(steps, quick, say, max(about["sgemm_gflops"].values()))
    return {"machine": about, "cases": cases}


def _cases(steps: int, quick: bool, say: Say, sgemm: float) -> list[dict[str, Any]]:
    cores = available_cores()
    counts = sorted({1, cores})
    tasks = {"tasks": 1} if quick else {}
    sides = [
        Side("ours (threads)", "innerloop.bench.ours:conv", 1, {"steps": steps, "workers": cores, **tasks})
    ]
    sides += [
        Side("plain-loop", "innerloop.bench.plain_loop:conv", n, {"steps": steps, **tasks}) for n in counts
    ]
    sides += [
        Side(name, "innerloop.bench.peers:conv", n, {"steps": steps, "library": name, **tasks})
        for name in installed()
        for n in counts
    ]
    blocks, seconds = (1, 0.1) if quick else (9, 1.0)
    measured = alternate(sides, blocks=blocks, seconds=seconds, say=say)
    flops = count_flops("innerloop.bench.plain_loop:conv", {"steps": steps, **tasks})
    ours, rows = measured[0], []
    for label in ("plain-loop", *installed()):
        peer = better([m for m in measured if m.side.label == label])
        headline = label == "plain-loop"
        rows.append(
            case_row(
                f"Conv4-64, 28×28, 4 tasks, {steps} steps",
                ours,
                peer,
                flops,
                sgemm,
                at_least=AT_LEAST[steps] if headline else None,
                memory_ratio=ours.megabytes / peer.megabytes,
                memory_at_most=MEMORY_AT_MOST if headline else None,
            )
        )
    return rows
