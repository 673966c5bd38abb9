"""MAML's kernel of 200 tasks in one Gram and two block products, against a loop over pairs of tasks.

Also how the time of kernel predictions grows with the number of training samples. Run as a module
(``python -m innerloop.bench.metakernel``) it is the child process of one side.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from innerloop.bench import harness
from innerloop.bench.harness import Say, Side, Timing
from innerloop.bench.machine import QUIET
from innerloop.bench.worker import Worker, keep_freed_memory, serve
from innerloop.execution.plan import available_cores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TASKS, QUERIES, SUPPORTS, DIM, DEPTH = 200, 10, 10, 10, 3
LOOPED = 30  # tasks of a peer's block: the number of pairs grows with their square
INNER = 0.1  # λτ
AT_LEAST = 20.0
POINTS = (250, 500, 1000, 2000, 4000)
MODULE = "innerloop.bench.metakernel"


def inputs(tasks: int) -> tuple[Any, Any]:
    """Query and support samples ``(tasks, n, d)``, float64."""
    import torch

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(tasks, QUERIES + SUPPORTS, DIM, generator=generator, dtype=torch.float64)
    return x[:, :QUERIES], x[:, QUERIES:]


def at_once(tasks: int, given: bool) -> Callable[[], Any]:
    """Our way; ``given``: the Gram is there already."""
    import torch

    from innerloop.kernels.analytic import mlp_kernel
    from innerloop.kernels.descent import Descent
    from innerloop.kernels.meta import maml_kernel
    from innerloop.kernels.task_blocks import stack

    kernel, (query, support) = mlp_kernel(DEPTH), inputs(tasks)
    x = torch.cat([stack(query), stack(support)])
    gram = kernel(x, x).ntk if given else None
    return lambda: maml_kernel(kernel(x, x).ntk if gram is None else gram, tasks, QUERIES, Descent(INNER))


def pair_loop(tasks: int, given: bool) -> Callable[[], Any]:
    """Eq. 106 block by block, as fast as a loop gets: each task's A once, each pair once, its Gram once."""
    import torch

    from innerloop.kernels.analytic import mlp_kernel

    kernel, (query, support) = mlp_kernel(DEPTH), inputs(tasks)
    samples = torch.cat([query, support], 1)
    whole = samples.flatten(0, 1)
    size, n = QUERIES + SUPPORTS, QUERIES
    gram = kernel(whole, whole).ntk if given else None

    def block(i: int, j: int) -> Any:
        if gram is not None:
            return gram[i * size : (i + 1) * size, j * size : (j + 1) * size]
        return kernel(samples[i], samples[i] if i == j else samples[j]).ntk

    def hat(i: int) -> Any:
        own = block(i, i)
        values, vectors = torch.linalg.eigh(own[n:, n:])
        response = (vectors * (-torch.expm1(-INNER * values) / values)) @ vectors.T
        return own[:n, n:] @ response

    def run() -> Any:
        hats = [hat(i) for i in range(tasks)]
        out = whole.new_empty(tasks * n, tasks * n)
        for i in range(tasks):
            for j in range(i, tasks):
                g = block(i, j)
                left = g[:n] - hats[i] @ g[n:]
                phi = left[:, :n] - left[:, n:] @ hats[j].T
                out[i * n : (i + 1) * n, j * n : (j + 1) * n] = phi
                out[j * n : (j + 1) * n, i * n : (i + 1) * n] = phi.T
        return out

    return run


def predictions(points: int, method: str, shots: int = QUERIES) -> float:
    """Seconds to fit ``points`` query samples in tasks of ``shots`` (and as many supports), and predict."""
    import torch

    from innerloop.core.types import TaskBatch
    from innerloop.kernels.analytic import mlp_kernel
    from innerloop.kernels.descent import Descent
    from innerloop.kernels.predict import fit, predict_tasks

    tasks = points // shots
    query, support = inputs(tasks)
    y, test = torch.randn(tasks, shots, 5, dtype=torch.float64), inputs(20)
    if method == "mtl":  # all samples are training samples: half of each task
        batch = TaskBatch(support[:, :0], y[:, :0], query, y, torch.arange(tasks))
    else:
        batch = TaskBatch(support, y, query, y, torch.arange(tasks))
    start = time.perf_counter()
    options: dict[str, Any] = {} if method == "mtl" else {"inner": Descent(INNER), "split": True}
    fitted = fit(mlp_kernel(DEPTH), batch, method, test=Descent(1.0), **options)  # type: ignore[arg-type]
    predict_tasks(fitted, test[0], test[1], torch.randn(20, SUPPORTS, 5, dtype=torch.float64))
    return time.perf_counter() - start


class MetakernelWorker(Worker):
    """Answers like the other benchmarks' worker, for these sides."""

    def setup(self, spec: dict[str, Any], gradient: str | None = None) -> dict[str, Any]:  # noqa: ARG002
        """Builds a side and runs it once."""
        import torch

        keep_freed_memory()
        torch.set_num_threads(spec["threads"])
        self.call = (at_once if spec["side"] == "ours" else pair_loop)(spec["tasks"], spec["given"])
        start = time.perf_counter()
        self.call()
        return {"first_call_s": time.perf_counter() - start}

    def agreement(self, tasks: int) -> dict[str, Any]:
        """The largest difference between both sides, relative to the largest entry."""
        ours, theirs = at_once(tasks, False)(), pair_loop(tasks, False)()
        return {"off": float((ours - theirs).abs().max() / theirs.abs().max())}

    def growth(self, points: list[int], threads: int) -> dict[str, Any]:
        """Seconds of a fit and its predictions, by method and number of training samples."""
        import torch

        torch.set_num_threads(threads)
        predictions(points[0], "maml")  # warm
        return {
            "seconds": {
                method: [min(predictions(p, method) for _ in range(2)) for p in points]
                for method in ("mtl", "anil", "maml")
            }
        }


def run(quick: bool = False, say: Say = print, sizes: dict[str, int] | None = None) -> dict[str, Any]:
    """Both comparisons, then the growth of predictions.

    Args:
        quick: few repeats and no more than 1,000 samples.
        say: receives lines for people.
        sizes: ``tasks``, ``looped`` and ``points`` (the largest), for tests.
    """
    sizes = sizes or {}
    rows = [row for given in (False, True) for row in one_case(given, quick, say, sizes)]
    points = [p for p in POINTS if p <= sizes.get("points", 1000 if quick else POINTS[-1])]
    with harness.Child("growth", MODULE) as child:
        found = child.ask("growth", points=points, threads=available_cores())["seconds"]
    growth = {"points": points, "seconds": found, "outputs": 5, "depth": DEPTH}
    if len(points) > 1:
        growth["exponent"] = {method: exponent(points, seconds) for method, seconds in found.items()}
    for method, seconds in found.items():
        shown = ", ".join(f"{p}: {s:.2g} s" for p, s in zip(points, seconds, strict=True))
        say(f"predictions, {method}, by training samples: {shown}")
    return {"cases": rows, "growth": growth, "machine": harness.machine(0.0 if quick else None)}


def one_case(given: bool, quick: bool, say: Say, sizes: dict[str, int]) -> list[dict[str, Any]]:
    """One comparison, each side at its better thread count."""
    tasks, looped = sizes.get("tasks", TASKS), sizes.get("looped", LOOPED)
    sides = [
        Side(
            f"{who}@{n}",
            {"side": who, "threads": n, "given": given, "tasks": tasks if who == "ours" else looped},
        )
        for who in ("ours", "pair-loop")
        for n in sorted({1, available_cores()})
    ]
    with ExitStack() as stack:
        children = {s.name: stack.enter_context(harness.Child(s.name, MODULE)) for s in sides}
        first = {s.name: children[s.name].ask("setup", spec=s.spec)["first_call_s"] for s in sides}
        off = children[sides[0].name].ask("agreement", tasks=min(looped, 20))["off"]
        blocks = harness.take_turns(children, *((3, 0.3, 0.0) if quick else (7, 0.7, harness.PATIENCE)))
    if not off < 1e-9:
        raise RuntimeError(f"the two ways to the kernel differ by {off:.2g} of its largest entry")
    timings = {s.name: _timing(s, blocks[s.name], first[s.name], tasks, looped) for s in sides}
    ours = min((t for n, t in timings.items() if n.startswith("ours")), key=lambda t: t.ms)
    peer = min((t for n, t in timings.items() if not n.startswith("ours")), key=lambda t: t.ms)
    notes = [f"kernels agree to {off:.0e}", f"the loop's time from {looped} tasks, scaled to {tasks}"]
    seen = [b["others"] for b in blocks[sides[0].name] if b.get("others") is not None]
    if seen and statistics.mean(seen) > QUIET:
        notes.append(f"others kept {statistics.mean(seen):.1f} cores busy")
    title = "Gram given" if given else "from inputs"
    row = {
        "case": f"MAML kernel, {tasks} tasks × ({QUERIES} + {SUPPORTS}), {title}",
        "peer": "pair-loop",
        "ours_ms": ours.ms,
        "peer_ms": peer.ms,
        "ratio": harness.ratio(ours, peer),
        "ours_mb": ours.peak_mb,
        "peer_mb": peer.peak_mb,
        "threads": f"{ours.side.spec['threads']} / {peer.side.spec['threads']}",
        "repeats": min(ours.repeats, peer.repeats),
        "at_least": None if given else AT_LEAST,
        "notes": "; ".join(notes),
    }
    say(f"{row['case']}: {row['ratio']:.0f}×")
    return [row]


def _timing(side: Side, blocks: list[dict[str, Any]], first: float, tasks: int, looped: int) -> Timing:
    """What was measured of a side; the loop ran over fewer pairs, so its time is scaled to all of them."""
    pairs = 1.0 if side.spec["side"] == "ours" else tasks * (tasks + 1) / (looped * (looped + 1))
    rounds = [statistics.median(b["seconds"]) * 1e3 * pairs for b in blocks]
    repeats = sum(len(b["seconds"]) for b in blocks)
    return Timing(side, rounds, max(b["peak_mb"] for b in blocks), 0.0, repeats, first)


def exponent(points: list[int], seconds: list[float]) -> float:
    """The slope of log time over log size between the last two sizes.

    >>> exponent([1, 2, 4], [1.0, 1.0, 8.0])
    3.0
    """
    return math.log(seconds[-1] / seconds[-2]) / math.log(points[-1] / points[-2])


def growth_figure(growth: dict[str, Any]) -> Figure:
    """The growth of predictions as :func:`run` gives it, on logarithmic axes."""
    from innerloop.plots.panels import line, panel, panels_figure

    points = [float(p) for p in growth["points"]]
    lines = [line(method.upper(), points, seconds) for method, seconds in growth["seconds"].items()]
    last = growth["seconds"]["mtl"][-1]
    law = line("∝ (N·n)²", points, [last * (p / points[-1]) ** 2 for p in points])
    title = "seconds to fit and predict 20 test tasks"
    one = panel("training samples N·n", title, [*lines, law], log_x=True, log_y=True)
    return panels_figure([one], width=5.0)


if __name__ == "__main__":
    serve(MetakernelWorker())
