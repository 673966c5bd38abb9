"""Ten thousand task environments in one batched call, against a numpy loop that is vectorised over tasks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

from innerloop.theory.landscape.forms import compare
from innerloop_studies.bench import harness
from innerloop_studies.bench.worker import Spec, Worker

TITLE = "10,000 task environments at d = 10 in one call, against a numpy loop over environments"
VERSION = 1

ENVIRONMENTS, DIM, RATE, SHOTS = 10_000, 10, 0.9, 50
TASKS = (2, 10)
AT_LEAST = 20.0
AGREE = 1e-10


def environments(count: int, tasks: int, dim: int) -> tuple[harness.Array, harness.Array]:
    """Covariances of random directions with eigenvalues between 0.1 and 1, and optima; float64."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((count, tasks, dim, dim)))[0]
    values = 0.1 + 0.9 * rng.random((count, tasks, 1, dim))
    return (basis * values) @ np.swapaxes(basis, -1, -2), rng.standard_normal((count, tasks, dim))


def numpy_loop(covariances: harness.Array, optima: harness.Array) -> harness.Array:
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


def build(spec: Spec) -> Callable[[], Any]:
    """The side asked for by ``side``, ``threads`` and ``sizes``."""
    s, w = environments(spec["environments"], spec["tasks"], spec["dim"])
    if spec["side"] == "ours":
        torch.set_num_threads(spec["threads"])
        covariances, optima = torch.from_numpy(s), torch.from_numpy(w)
        return lambda: compare(covariances, optima, lr=RATE, shots=SHOTS).gain
    threadpool_limits(spec["threads"])
    return lambda: numpy_loop(s, w)


def run(quick: bool = False, say: harness.Say = print, sizes: dict[str, int] | None = None) -> harness.Report:
    """Solutions, risks and gains of 10,000 environments of two and of ten tasks at d = 10."""
    count, dim = (sizes or {}).get("environments", ENVIRONMENTS), (sizes or {}).get("dim", DIM)
    rows = []
    for tasks in TASKS[:1] if quick else TASKS:
        base = {"environments": count, "tasks": tasks, "dim": dim}
        with harness.started(harness.on_threads(("ours", "numpy-loop"), base), __name__, say) as both:
            *_, reference = gains = list(both.results.values())
            off = float(np.max([np.abs(g / reference - 1) for g in gains]))
            if not off <= AGREE:
                raise RuntimeError(f"the sides disagree: gains differ by {off:.1g}")
            measured = both.measured(quick, (3, 0.2), (9, 0.4))
        case = f"{count:,} environments of {tasks} tasks, d={dim}, float64"
        at_least, notes = AT_LEAST if tasks == TASKS[0] else None, [f"gains differ by at most {off:.0e}"]
        rows.append(measured.row(case, "numpy-loop", at_least, notes))
    return {"cases": rows, "machine": harness.machine(quick)}


WORKER = Worker(build, np.asarray)
