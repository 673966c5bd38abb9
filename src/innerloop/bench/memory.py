"""Memory: does it grow over thousands of meta-steps, and what do first order and recomputation save?"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from innerloop.bench.harness import Say, Side, alternate
from innerloop.bench.machine import machine

EARLY, LATE = 100, 3000


def run(*, quick: bool, say: Say) -> dict[str, Any]:
    """Peak memory of training after many steps against after few, and of variants of the conv inner loop."""
    cases = [_growth(quick, say)]
    cases += _variants(quick, say)
    return {"machine": machine(quick), "cases": cases}


def _growth(quick: bool, say: Say) -> dict[str, Any]:
    early, late = (5, 20) if quick else (EARLY, LATE)
    say(f"sine MAML through fit(): peak memory after {late} meta-steps against after {early}")
    child = subprocess.run(
        [sys.executable, "-m", "innerloop.bench.memory", str(early), str(late)],
        capture_output=True,
        text=True,
        check=True,
    )
    peaks = json.loads(child.stdout.strip().splitlines()[-1])
    first, last = peaks[str(early)], peaks[str(late)]
    return {
        "case": f"fit(), sine MAML: after {late} meta-steps against after {early}",
        "peer": f"itself after {early} steps",
        "ours_ms": None,
        "peer_ms": None,
        "ratio": last / first,
        "ours_mb": last,
        "peer_mb": first,
        "threads": {"ours": 1, "peer": 1},
        "repeats": {"ours": 1, "peer": 1},
        "at_most": 1.01,
    }


def _variants(quick: bool, say: Say) -> list[dict[str, Any]]:
    say("Conv4-64, 10 inner steps: second order, first order, recomputed inner steps")
    base = {"steps": 2 if quick else 10, "mode": "loop", "tasks": 1 if quick else 2}
    sides = [
        Side("second order", "innerloop.bench.ours:conv", 1, base),
        Side("first order", "innerloop.bench.ours:conv", 1, {**base, "first_order": True}),
        Side("recomputed", "innerloop.bench.ours:conv", 1, {**base, "checkpoint": True}),
    ]
    measured = alternate(sides, blocks=1 if quick else 3, seconds=0.5, say=say)
    full = measured[0]
    return [
        {
            "case": f"Conv4-64, {base['steps']} inner steps, {m.side.label}",
            "peer": "ours, second order",
            "ours_ms": m.milliseconds,
            "peer_ms": full.milliseconds,
            "ratio": full.milliseconds / m.milliseconds,
            "ours_mb": m.megabytes,
            "peer_mb": full.megabytes,
            "threads": {"ours": 1, "peer": 1},
            "repeats": {"ours": m.repeats, "peer": full.repeats},
        }
        for m in measured[1:]
    ]


def train_and_watch(early: int, late: int) -> dict[int, float]:
    """Trains sine MAML in this process; peak memory (MB) after each of two numbers of steps."""
    import torch

    from innerloop.bench.problems import sine_problem
    from innerloop.bench.worker import peak_megabytes
    from innerloop.core.losses import get_loss
    from innerloop.execution import Plan
    from innerloop.learners import maml
    from innerloop.objectives import episodic
    from innerloop.tasks import get_family, make_sampler
    from innerloop.training import fit, initial_state, make_optimiser

    torch.set_num_threads(1)
    problem, loss = sine_problem(1), get_loss("mse")
    objective = episodic(maml(problem.network, loss, 0.01, 1), loss)
    sampler = make_sampler(get_family("sine"), seed=0, shots=10, queries=10)
    peaks: dict[int, float] = {}

    def log(record: dict[str, Any]) -> None:
        if record["step"] in (early, late):
            peaks[record["step"]] = peak_megabytes()

    fit(
        objective,
        initial_state(problem.params, {}),
        sampler,
        make_optimiser("adam", 1e-3),
        steps=late,
        batch=25,
        plan=Plan("vmap", 1),
        log=log,
        log_every=early,
    )
    return peaks


if __name__ == "__main__":
    found = train_and_watch(int(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.write(json.dumps(found) + "\n")
