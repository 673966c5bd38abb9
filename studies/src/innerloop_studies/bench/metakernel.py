"""MAML's kernel of 200 tasks at once, against a loop over pairs of tasks; how times of predictions grow."""

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from innerloop.core.resources import available_cores
from innerloop.core.types import TaskBatch
from innerloop.kernels import Descent, fit, mlp_kernel, predict_tasks
from innerloop.kernels.meta.kernel import maml_kernel, stack
from innerloop_studies.bench import harness
from innerloop_studies.bench.worker import Answer, Spec, Worker

TITLE = "MAML's kernel of 200 tasks against a loop over pairs; growth of kernel predictions"
VERSION = 1
TASKS = 200
LOOPED = 30  # tasks of a peer's block: the number of pairs grows with their square
AT_LEAST = 20.0
POINTS = (250, 500, 1000, 2000, 4000)
QUERIES, SUPPORTS, DIM, DEPTH, OUTPUTS = 10, 10, 10, 3, 5
INNER = 0.1  # λτ
METHODS = ("mtl", "anil", "maml")


def inputs(tasks: int) -> tuple[Tensor, Tensor]:
    """Query and support samples ``(tasks, n, d)``, float64."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(tasks, QUERIES + SUPPORTS, DIM, generator=generator, dtype=torch.float64)
    return x[:, :QUERIES], x[:, QUERIES:]


def at_once(tasks: int, given: bool) -> Callable[[], Tensor]:
    """Our way; ``given``: the Gram is there already."""
    kernel, (query, support) = mlp_kernel(DEPTH), inputs(tasks)
    x = torch.cat([stack(query), stack(support)])
    gram = kernel(x, x).ntk if given else None
    return lambda: maml_kernel(kernel(x, x).ntk if gram is None else gram, tasks, QUERIES, Descent(INNER))


def pair_loop(tasks: int, given: bool) -> Callable[[], Tensor]:
    """Eq. 106 block by block, as fast as a loop gets: each task's A once, each pair once, its Gram once."""
    kernel, (query, support) = mlp_kernel(DEPTH), inputs(tasks)
    samples = torch.cat([query, support], 1)
    whole = samples.flatten(0, 1)
    size, n = QUERIES + SUPPORTS, QUERIES
    gram = kernel(whole, whole).ntk if given else None

    def block(i: int, j: int) -> Tensor:
        if gram is not None:
            return gram[i * size : (i + 1) * size, j * size : (j + 1) * size]
        return kernel(samples[i], samples[i] if i == j else samples[j]).ntk

    def hat(i: int) -> Tensor:
        own = block(i, i)
        values, vectors = torch.linalg.eigh(own[n:, n:])
        response = (vectors * (-torch.expm1(-INNER * values) / values)) @ vectors.T
        return own[:n, n:] @ response

    def run() -> Tensor:
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


def predictions(points: int, method: str) -> float:
    """Seconds to fit ``points`` query samples (and as many supports), and predict."""
    tasks = points // QUERIES
    query, support = inputs(tasks)
    y, test = torch.randn(tasks, QUERIES, OUTPUTS, dtype=torch.float64), inputs(20)
    first = 0 if method == "mtl" else None  # all samples are training samples: half of each task
    batch = TaskBatch(support[:, :first], y[:, :first], query, y, torch.arange(tasks))
    start = time.perf_counter()
    options: dict[str, Any] = {} if method == "mtl" else {"inner": Descent(INNER), "split": True}
    fitted = fit(mlp_kernel(DEPTH), batch, method, test=Descent(1.0), **options)  # type: ignore[arg-type]
    predict_tasks(fitted, test[0], test[1], torch.randn(20, SUPPORTS, OUTPUTS, dtype=torch.float64))
    return time.perf_counter() - start


def build(spec: Spec) -> Callable[[], Tensor]:
    """The side asked for by ``side``, ``tasks``, ``given`` and ``threads``."""
    torch.set_num_threads(spec["threads"])
    return (at_once if spec["side"] == "ours" else pair_loop)(spec["tasks"], spec["given"])


class MetakernelWorker(Worker):
    """Also compares both sides, and times predictions."""

    def agreement(self, tasks: int) -> Answer:
        """The largest difference between both sides, relative to the largest entry."""
        ours, theirs = at_once(tasks, False)(), pair_loop(tasks, False)()
        return {"off": float((ours - theirs).abs().max() / theirs.abs().max())}

    def growth(self, points: list[int], threads: int) -> Answer:
        """Seconds of a fit and its predictions, by method and number of training samples."""
        torch.set_num_threads(threads)
        predictions(points[0], "maml")  # warm
        better_of_two = {m: [min(predictions(p, m) for _ in range(2)) for p in points] for m in METHODS}
        return {"seconds": better_of_two}


def run(quick: bool = False, say: harness.Say = print, sizes: dict[str, int] | None = None) -> harness.Report:
    """Both comparisons, then the growth of predictions."""
    sizes = sizes or {}
    rows = [one_case(given, quick, say, sizes) for given in (False, True)]
    points = [p for p in POINTS if p <= sizes.get("points", 1000 if quick else POINTS[-1])]
    with harness.Child("growth", __name__) as child:
        by_method = child.ask("growth", points=points, threads=available_cores())["seconds"]
    growth = {"points": points, "seconds": by_method, "outputs": OUTPUTS, "depth": DEPTH}
    for method, seconds in by_method.items():
        shown = ", ".join(f"{p}: {s:.2g} s" for p, s in zip(points, seconds, strict=True))
        say(f"predictions, {method}, by training samples: {shown}")
    if len(points) > 1:  # by which power they grow: the slope between the last two sizes
        longer = math.log(points[-1] / points[-2])
        growth["exponent"] = {method: math.log(s[-1] / s[-2]) / longer for method, s in by_method.items()}
    return {"cases": rows, "growth": growth, "machine": harness.machine(quick)}


def one_case(given: bool, quick: bool, say: harness.Say, sizes: dict[str, int]) -> harness.Comparison:
    """One comparison, each side at its better thread count."""
    tasks, looped = sizes.get("tasks", TASKS), sizes.get("looped", LOOPED)
    sides = harness.on_threads(["ours"], {"given": given, "tasks": tasks})
    sides += harness.on_threads(["pair-loop"], {"given": given, "tasks": looped})
    scale = harness.peers_times(tasks * (tasks + 1) / (looped * (looped + 1)))
    with harness.started(sides, __name__, say) as both:
        off = both.children["ours@1"].ask("agreement", tasks=min(looped, 20))["off"]
        measured = both.measured(quick, (3, 0.3), (7, 0.7), scale=scale)
    if not off < 1e-9:
        raise RuntimeError(f"the two ways to the kernel differ by {off:.2g} of its largest entry")
    source = "Gram given" if given else "from inputs"
    title = f"MAML kernel, {tasks} tasks × ({QUERIES} + {SUPPORTS}), {source}"
    notes = [f"kernels agree to {off:.0e}", f"the loop's time from {looped} tasks, scaled to {tasks}"]
    return measured.row(title, "pair-loop", None if given else AT_LEAST, notes)


def figure(result: harness.Report) -> Any:
    """Of a result of ``bench metakernel``: the growth of predictions, on logarithmic axes."""
    from innerloop.report.plots.panels import line, panel, panels_figure

    growth = result["growth"]
    points = [float(p) for p in growth["points"]]
    lines = [line(method.upper(), points, seconds) for method, seconds in growth["seconds"].items()]
    last = growth["seconds"]["mtl"][-1]
    law = line("∝ (N·n)²", points, [last * (p / points[-1]) ** 2 for p in points])
    title = "seconds to fit and predict 20 test tasks"
    one = panel("training samples N·n", title, [*lines, law], log_x=True, log_y=True)
    return panels_figure([one], width=5.0)


WORKER = MetakernelWorker(build)
