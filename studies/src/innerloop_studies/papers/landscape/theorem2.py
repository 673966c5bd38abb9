r"""Theorem 2 (Appendix D.1): the NAL solution on T tasks of n samples tends to its population value.

Eq. 45 bounds :math:`\|w_{NAL}-w^*_{NAL}\|` by :math:`\tilde O(\sqrt{d/n}+1/\sqrt T)`; eq. 46 splits it into
:math:`\theta=\|w^{(T,n)}-w^{(T)*}\|`, for given tasks, and :math:`\|w^{(T)*}-w^*\|`, for endless samples.
"""

from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from innerloop.report.plots.panels import panels_figure
from innerloop.theory.landscape.forms import nal_solution
from innerloop_studies.papers.adaptlr.shared import seeded
from innerloop_studies.papers.landscape import finite
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row

TITLE = "Landscape, Theorem 2 (App. D): NAL on finite samples, slopes in T, n and d"
VERSION = 1
DIM, TASKS, SAMPLES = 8, 16, 64
SIZES: dict[str, tuple[int, list[int], list[int], list[int]]] = {
    "smoke": (100, [32, 128, 512], [32, 128, 512], [4, 16, 64]),
    "cpu": (300, [2**k for k in range(5, 11)], [2**k for k in range(5, 12)], [4, 8, 16, 32, 64]),
}
SIZES["paper"] = (2000, [2**k for k in range(5, 13)], [2**k for k in range(5, 15)], SIZES["cpu"][3])
"""Draws, numbers of tasks, of samples, of dimensions."""

Results = dict[str, Any]
"""Distances along the numbers of samples, of dimensions and of tasks; the closed form along the last."""


def run(scale: str, say: Say) -> Reproduction:
    """Draws training sets of one environment, and solves each exactly."""
    draws, tasks, samples, dims = SIZES[scale]
    scatter = finite.nal_scatter(finite.draw_environment(DIM, seeded(DIM)), SAMPLES)
    sizes = {"tasks": tasks, "samples": samples, "dims": dims}
    results: Results = {
        **sizes,
        "by_samples": [_distances(DIM, TASKS, n, draws) for n in samples],
        "by_dim": [_distances(d, TASKS, 8 * max(dims), draws) for d in dims],
        "by_tasks": [_distances(DIM, t, SAMPLES, draws) for t in tasks],
        "closed_form": [(scatter / t) ** 0.5 for t in tasks],
    }
    say(f"{draws} draws: T from {tasks[0]} to {tasks[-1]}, n from {samples[0]} to {samples[-1]}")
    protocol = {
        "environment": finite.environment_stated(DIM),
        "distance": f"the {finite.SURE:.0%} quantile over {draws} draws of T tasks with their samples",
        "held": f"T = {TASKS} where n or d changes, n = {SAMPLES} where T does; n = ∞ for the second term",
        "paper": "a theorem: nothing is run there, and its absolute constants are not given",
    }
    near = 0.1 if scale == "smoke" else 0.05
    figures = {"landscape-theorem2": _figure(results)}
    return Reproduction(_rows(results, near), figures, results, protocol)


def _distances(dim: int, tasks: int, samples: int, draws: int) -> dict[str, float]:
    """By eq. 46, over draws: the whole distance, θ for the tasks given, that between the optima."""
    env = finite.draw_environment(dim, seeded(dim))
    g = seeded(tasks * 100_003 + samples)
    best = nal_solution(env.covariances, env.optima)
    parts: dict[str, list[Tensor]] = {"whole": [], "given": [], "between": []}
    for count in finite.chunks(draws, tasks * dim**2):
        drawn = finite.take(env, torch.randint(len(env.optima), (count, tasks), generator=g))
        middle = nal_solution(drawn.covariances, drawn.optima)
        w = finite.nal_of_moments(finite.task_moments(drawn, samples, g), drawn.optima)
        for name, apart in (("whole", w - best), ("given", w - middle), ("between", middle - best)):
            parts[name].append(apart.norm(dim=-1))
    distances = {name: torch.cat(some) for name, some in parts.items()}
    rms = {f"rms_{name}": float(values.square().mean().sqrt()) for name, values in distances.items()}
    spread = float(distances["whole"].square().std()) / len(distances["whole"]) ** 0.5
    sure = {name: finite.sure_distance(values) for name, values in distances.items()}
    return {**sure, **rms, "rms_error": spread / (2 * rms["rms_whole"])}


def _along(results: Results, by: str, name: str = "given") -> list[float]:
    return [one[name] for one in results[by]]


def _rows(results: Results, near: float) -> list[Row]:
    tasks, samples = results["tasks"], results["samples"]
    first, last = results["by_samples"][0], results["by_samples"][-1]
    measured, known = results["by_tasks"][-1], results["closed_form"][-1]
    off = abs(measured["rms_whole"] - known) / measured["rms_error"]
    between, theta = _along(results, "by_tasks", "between"), _along(results, "by_samples")
    by_dim, by_tasks = _along(results, "by_dim", "rms_given"), _along(results, "by_tasks")
    grows = "eq. 45: the first term grows with d like √d (root mean square over draws)"
    both = f"eq. 45: both terms are needed; T = {TASKS} tasks leave the second, whatever n is"
    said = f"{first['whole']:.3f} at n = {samples[0]}, {last['whole']:.3f} at {samples[-1]}"
    first_term = "eq. 46, first term: the tasks given, falls with n like 1/√n"
    ours = f"ours: the first term falls with T too (n = {SAMPLES}), which eq. 45 does not say"
    whole = f"ours: the whole distance (root mean square, T = {tasks[-1]}, n = {SAMPLES}) in closed form"
    found = f"{measured['rms_whole']:.5f} ± {measured['rms_error']:.5f}: {off:.1f} standard errors off"
    why = "first order in 1/√T: Λ⁻¹ Cov(G_i v_i + c_i) Λ⁻¹/T, Gaussian fourth moments"
    return [
        finite.slope_row("eq. 46, second term: n = ∞, falls with T like 1/√T", -0.5, tasks, between, near),
        finite.slope_row(first_term, -0.5, samples, theta, near),
        finite.slope_row(grows, 0.5, results["dims"], by_dim, 2 * near),
        row(both, f"→ {last['between']:.3f}", said, abs(last["whole"] / last["between"] - 1) < 0.1),
        finite.slope_row(ours, -0.5, tasks, by_tasks, near),
        row(whole, round(known, 5), found, off < 4, reason=why),
    ]


def _figure(results: Results) -> Figure:
    tasks, by_tasks = results["tasks"], _along(results, "by_tasks")
    given, whole = _along(results, "by_samples"), _along(results, "by_samples", "whole")
    by_dim = _along(results, "by_dim", "rms_given")
    by_samples = {"tasks given": given, "whole": whole}
    panels = [
        finite.law_panel("tasks T", tasks, {"n = ∞": _along(results, "by_tasks", "between")}),
        finite.law_panel("samples n of each task", results["samples"], by_samples),
        finite.law_panel("dimension d", results["dims"], {"tasks given": by_dim}, 0.5),
        finite.law_panel("tasks T", tasks, {f"tasks given, n = {SAMPLES}": by_tasks}),
    ]
    return panels_figure(panels)
