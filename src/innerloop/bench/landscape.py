"""Ten thousand task environments in one batched call, against a numpy loop over environments.

Inside an environment the loop is vectorised (over tasks, with stacked matrix products), as one would write
it. Run as a module (``python -m innerloop.bench.landscape``) it is the child process of one side.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from innerloop.bench import harness
from innerloop.bench.harness import Say, Side, Timing
from innerloop.bench.machine import QUIET
from innerloop.bench.worker import Worker, keep_freed_memory
from innerloop.execution.plan import available_cores

ENVIRONMENTS, DIM, RATE, SHOTS = 10_000, 10, 0.9, 50
TASKS = (2, 10)
AT_LEAST = 20.0
AGREE = 1e-10
Array = np.ndarray[Any, Any]


def environments(count: int, tasks: int, dim: int) -> tuple[Array, Array]:
    """Covariances of random directions with eigenvalues between 0.1 and 1, and optima; float64."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((count, tasks, dim, dim)))[0]
    values = 0.1 + 0.9 * rng.random((count, tasks, 1, dim))
    return (basis * values) @ np.swapaxes(basis, -1, -2), rng.standard_normal((count, tasks, dim))


def numpy_loop(covariances: Array, optima: Array) -> Array:
    """The gain of every environment, one environment at a time."""
    gains = np.empty(len(covariances))
    for e, (s, w) in enumerate(zip(covariances, optima, strict=True)):
        square = s @ s
        spread = RATE**2 / SHOTS * np.trace(square, axis1=1, axis2=2)
        q = (1 + spread)[:, None, None] * s - 2 * RATE * square + RATE**2 * (1 + 1 / SHOTS) * (square @ s)
        nal = np.linalg.solve(s.mean(0), (s @ w[..., None])[..., 0].mean(0))
        maml = np.linalg.solve(q.mean(0), (q @ w[..., None])[..., 0].mean(0))
        v = np.stack([nal, maml])[:, None] - w
        risks = ((q @ v[..., None])[..., 0] * v).sum(-1).mean(-1)
        gains[e] = risks[0] / risks[1]
    return gains


def build(spec: dict[str, Any]) -> Callable[[], Any]:
    """The side asked for by ``side``, ``threads`` and ``sizes``."""
    import torch
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

    from innerloop.theory.landscape_batch import compare

    s, w = environments(spec["environments"], spec["tasks"], spec["dim"])
    if spec["side"] == "ours":
        torch.set_num_threads(spec["threads"])
        covariances, optima = torch.from_numpy(s), torch.from_numpy(w)
        return lambda: compare(covariances, optima, lr=RATE, shots=SHOTS).gain
    threadpool_limits(spec["threads"])
    return lambda: numpy_loop(s, w)


class LandscapeWorker(Worker):
    """Answers like the other benchmarks' worker, for these sides."""

    def setup(self, spec: dict[str, Any], gradient: str | None = None) -> dict[str, Any]:
        """Builds a side, runs it once, and writes its gains to a file."""
        keep_freed_memory()
        self.call = build(spec)
        start = time.perf_counter()
        found = self.call()
        if gradient:
            np.save(gradient, np.asarray(found))
        return {"first_call_s": time.perf_counter() - start}


class Child(harness.Child):
    """A side's process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  (closed on exit)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "innerloop.bench.landscape"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            encoding="utf-8",
        )


def run(quick: bool = False, say: Say = print, sizes: dict[str, int] | None = None) -> dict[str, Any]:
    """Solutions, risks and gains of 10,000 environments of two and of ten tasks at d = 10.

    Args:
        quick: few repeats, and two tasks only.
        say: receives lines for people.
        sizes: ``environments`` and ``dim``, for tests.
    """
    rows = [one_case(tasks, quick, say, sizes or {}) for tasks in (TASKS[:1] if quick else TASKS)]
    return {"cases": rows, "machine": harness.machine(0.0 if quick else None)}


def one_case(tasks: int, quick: bool, say: Say, sizes: dict[str, int]) -> dict[str, Any]:
    """Both sides on one thread and on all; each at its better count."""
    count, dim = sizes.get("environments", ENVIRONMENTS), sizes.get("dim", DIM)
    base = {"environments": count, "tasks": tasks, "dim": dim}
    sides = [
        Side(f"{who}@{n}", {**base, "side": who, "threads": n})
        for who in ("ours", "numpy-loop")
        for n in sorted({1, available_cores()})
    ]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        children: dict[str, harness.Child] = {s.name: stack.enter_context(Child(s.name)) for s in sides}
        first = {
            s.name: children[s.name].ask("setup", spec=s.spec, gradient=str(folder / f"{i}.npy"))
            for i, s in enumerate(sides)
        }
        off = disagreement([np.load(folder / f"{i}.npy") for i in range(len(sides))])
        blocks = harness.take_turns(children, *((3, 0.2, 0.0) if quick else (9, 0.4, harness.PATIENCE)))
    timings = {s.name: _timing(s, blocks[s.name], first[s.name]) for s in sides}
    seen = [b["others"] for b in blocks[sides[0].name] if b.get("others") is not None]
    row = _row(f"{count:,} environments of {tasks} tasks, d={dim}, float64", timings)
    notes = [f"gains differ by at most {off:.0e}"]
    if seen and statistics.mean(seen) > QUIET:
        notes.append(f"others kept {statistics.mean(seen):.1f} cores busy")
    say(f"{row['case']}: {row['ratio']:.0f}×; {'; '.join(notes)}")
    return {**row, "notes": "; ".join(notes)}


def disagreement(gains: list[Array]) -> float:
    """The largest relative difference between sides.

    Raises:
        RuntimeError: if it exceeds :data:`AGREE`; a faster wrong answer is no result.
    """
    worst = max(float(np.max(np.abs(g / gains[-1] - 1))) for g in gains)
    if not worst <= AGREE:
        raise RuntimeError(f"the sides disagree: gains differ by {worst:.1g}")
    return worst


def _timing(side: Side, blocks: list[dict[str, Any]], first: dict[str, Any]) -> Timing:
    rounds = [statistics.median(block["seconds"]) * 1e3 for block in blocks]
    peak = max(block["peak_mb"] for block in blocks)
    return Timing(side, rounds, peak, 0.0, sum(len(b["seconds"]) for b in blocks), first["first_call_s"])


def _row(title: str, timings: dict[str, Timing]) -> dict[str, Any]:
    ours = min((t for n, t in timings.items() if n.startswith("ours")), key=lambda t: t.ms)
    peer = min((t for n, t in timings.items() if n.startswith("numpy")), key=lambda t: t.ms)
    return {
        "case": title,
        "peer": "numpy-loop",
        "ours_ms": ours.ms,
        "peer_ms": peer.ms,
        "ratio": harness.ratio(ours, peer),
        "ours_mb": ours.peak_mb,
        "peer_mb": peer.peak_mb,
        "threads": f"{ours.side.spec['threads']} / {peer.side.spec['threads']}",
        "repeats": min(ours.repeats, peer.repeats),
        "at_least": AT_LEAST if "of 2 tasks" in title else None,
    }


def main() -> None:
    """Answers until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever libraries print must not be taken for an answer
    worker = LandscapeWorker()
    for line in sys.stdin:
        request = json.loads(line)
        answers.write(json.dumps(getattr(worker, request.pop("do"))(**request)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
