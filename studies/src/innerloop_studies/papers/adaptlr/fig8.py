"""AdaptLR, Figure 8: |α*(N) − α*_lim| against the number of tasks, for three kinds of features."""

from typing import Any

import torch
from torch import Tensor

from innerloop.report.plots.panels import line, panel, panels_figure
from innerloop.theory.rate import best_rate, bounds, limit_moments, task_sums
from innerloop.theory.rate.linear import gaussian_basis, polynomial_basis, spread_centres
from innerloop_studies.papers.adaptlr.shared import Law, seeded
from innerloop_studies.reproduce.rows import Reproduction, Say, row

TITLE = "AdaptLR, Figure 8: |α*(N) − α*_lim| against the number of tasks"
VERSION = 1
SAMPLES = 50
KINDS = ("random matrix", "Gaussian basis", "polynomial basis")


def draw(kind: str, made: torch.Generator, tasks: int) -> Tensor:
    """Features of one kind: d = 20 for random matrices, 10 bumps on (−5, 5), 5 Taylor terms on (−1, 1)."""
    wide = Law("uniform", -5, 5)
    if kind == "random matrix":
        return wide.draw(made, tasks, SAMPLES, 20)
    if kind == "Gaussian basis":
        return gaussian_basis(wide.draw(made, tasks, SAMPLES, 1), spread_centres(-5, 5, 10), 1.0)
    return polynomial_basis(Law("uniform", -1, 1).draw(made, tasks, SAMPLES, 1), 5, scaled=True)


def run(scale: str, say: Say) -> Reproduction:
    """Ten trials at every N; the limit is estimated from many tasks of its own."""
    top, trials = {"smoke": (7, 4), "cpu": (11, 10), "paper": (13, 10)}[scale]
    counts = [2**e for e in range(1, top + 1, 2)]
    data = {kind: _errors(kind, counts, trials, seed=i) for i, kind in enumerate(KINDS)}
    rows, panels = [], []
    for kind, errors in data.items():
        mean, deviation, limit = errors["mean"], errors["deviation"], errors["limit"]
        first, last = mean[0], mean[-1]
        say(f"{kind}: α*_lim = {limit:.4g}, error {first:.3g} → {last:.3g}")
        what = f"{kind}: |α*(N) − α*_lim| shrinks from N = {counts[0]} to {counts[-1]}"
        said = f"{first:.3g} → {last:.3g} ({last / limit:.1%} of α*_lim)"
        holds = last < 0.5 * first and deviation[-1] < deviation[0]
        why = "holds if mean error more than halves and its deviation falls"
        rows.append(row(what, "shrinks towards 0", said, holds, reason=why))
        curve = line(f"mean of {trials} trials, ± deviation", counts, mean, half=deviation)
        panels.append(panel("number of tasks", f"{kind}: |α*(N) − α*_lim|", [curve], log_x=True))
    protocol = {"samples per task": SAMPLES, "trials": trials, "optima": "N(0, 3I)", "seeds": "0, 1, 2"}
    return Reproduction(rows, {"adaptlr-fig8": panels_figure(panels, columns=3, width=3.6)}, data, protocol)


def _errors(kind: str, counts: list[int], trials: int, seed: int) -> dict[str, Any]:
    """Means and deviations over trials of |α*(N) − α*_lim|, for every number of tasks; and α*_lim."""
    made = seeded(seed)
    many = draw(kind, made, 4000)
    limit, highest = limit_moments(many).rate, bounds(many).high

    def error(n: int) -> float:
        features = draw(kind, made, n)
        optima = Law("normal", 0, 3**0.5).draw(made, n, features.shape[2])
        return abs(best_rate(task_sums(features, optima), highest) - limit)

    errors = [torch.tensor([error(n) for _ in range(trials)], dtype=torch.float64) for n in counts]
    means, deviations = [float(one.mean()) for one in errors], [float(one.std()) for one in errors]
    return {"counts": counts, "mean": means, "deviation": deviations, "limit": limit}
