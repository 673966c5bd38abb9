"""How the time of kernel predictions grows with the number of training samples."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from innerloop_studies.bench.report_parts import Growth
from innerloop_studies.bench.rows import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUERIES, SUPPORTS, DIM, DEPTH, OUTPUTS = 10, 10, 10, 3, 5
INNER = 0.1  # λτ
METHODS = ("mtl", "anil", "maml")


def inputs(tasks: int) -> tuple[Any, Any]:
    """Query and support samples ``(tasks, n, d)``, float64."""
    import torch

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(tasks, QUERIES + SUPPORTS, DIM, generator=generator, dtype=torch.float64)
    return x[:, :QUERIES], x[:, QUERIES:]


def predictions(points: int, method: str, shots: int = QUERIES) -> float:
    """Seconds to fit ``points`` query samples in tasks of ``shots`` (and as many supports), and predict."""
    import torch

    from innerloop.core.types import TaskBatch
    from innerloop.kernels.analytic.networks import mlp_kernel
    from innerloop.kernels.meta.descent import Descent
    from innerloop.kernels.meta.predict import fit, predict_tasks

    tasks = points // shots
    query, support = inputs(tasks)
    y, test = torch.randn(tasks, shots, OUTPUTS, dtype=torch.float64), inputs(20)
    if method == "mtl":  # all samples are training samples: half of each task
        batch = TaskBatch(support[:, :0], y[:, :0], query, y, torch.arange(tasks))
    else:
        batch = TaskBatch(support, y, query, y, torch.arange(tasks))
    start = time.perf_counter()
    options: dict[str, Any] = {} if method == "mtl" else {"inner": Descent(INNER), "split": True}
    fitted = fit(mlp_kernel(DEPTH), batch, method, test=Descent(1.0), **options)  # type: ignore[arg-type]
    predict_tasks(fitted, test[0], test[1], torch.randn(20, SUPPORTS, OUTPUTS, dtype=torch.float64))
    return time.perf_counter() - start


def seconds_by_size(points: list[int]) -> dict[str, list[float]]:
    """Seconds of a fit and its predictions, by method and number of training samples: the better of two."""
    predictions(points[0], "maml")  # warm
    return {method: [min(predictions(p, method) for _ in range(2)) for p in points] for method in METHODS}


def summary(points: list[int], seconds: dict[str, list[float]]) -> Growth:
    """The times with their setting, and by which power they grow where that can be told."""
    growth: Growth = {"points": points, "seconds": seconds, "outputs": OUTPUTS, "depth": DEPTH}
    if len(points) > 1:
        growth["exponent"] = {method: exponent(points, values) for method, values in seconds.items()}
    return growth


def exponent(points: list[int], seconds: list[float]) -> float:
    """The slope of log time over log size between the last two sizes.

    >>> exponent([1, 2, 4], [1.0, 1.0, 8.0])
    3.0
    """
    return math.log(seconds[-1] / seconds[-2]) / math.log(points[-1] / points[-2])


def growth_figure(result: Report) -> Figure:
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
