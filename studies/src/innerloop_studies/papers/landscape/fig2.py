"""Figures 2 and 7: first coordinates and excess risks against ρ_H, closed forms with SGD's points on them."""

from typing import Any

import torch

from innerloop.report.plots.panels import Panel, panel, panels_figure
from innerloop.theory.landscape.forms import adapted_curvature, compare, excess_risk
from innerloop_studies.papers.figures import along
from innerloop_studies.papers.landscape import linear
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row

TITLE = "Landscape, Figures 2 and 7: coordinates and excess risks against ρ_H"
VERSION = 1
DIM, SHOTS = 10, (2000, 100)
SIZES = {"smoke": (20, 4, 60), "cpu": (10, 10, 5000), "paper": (10, 20, 5000)}
"""Repeats, values of ρ_H, iterations."""
NEARER = {2000: (0.05, 0.9), 100: (0.2, 0.6)}
"""Where "ρ_H/ρ_E is not close to zero or one": the middle shrinks as the samples get fewer."""
NEARLY_ZERO = 1e-4  # a ρ_H for "goes to zero": far below d/m at both numbers of samples

Column = dict[str, Any]
"""Both methods along ρ_H, and how many standard errors SGD is off: its limit, and its expected ends."""


def run(scale: str, say: Say) -> Reproduction:
    """Two tasks at **1** and −**1**, ρ_E = 1, α = 1, ν² = 0.01."""
    runs, grid, steps = SIZES[scale]
    rows, panels, data = list[Row](), list[Panel](), dict[str, Any]()
    for shots in SHOTS:
        column = _column(shots, runs, grid, steps)
        data[f"m={shots}"] = column
        panels += _panels(shots, column)
        say(f"m={shots}: SGD at most {column['worst']:.1f} standard errors from the closed forms")
        rows += _rows(shots, column, steps, scale)
    protocol = {
        "tasks": "two, optima 1 and −1 in 10 dimensions, ρ_E = 1, α = 1, ν² = 0.01",
        "SGD": f"{steps} iterations of one task, n₁ = 25, n₂ = m, rates as in C.1, {runs} repeats",
        "excess risk of SGD's ends": "by the closed form, where the paper draws 3,000 samples",
        "steps drawn": "from sufficient statistics (same distribution as samples)",
    }
    figure = panels_figure(panels, width=3.6, height=2.9, shared_legend=True)
    return Reproduction(rows, {"landscape-fig2": figure}, data, protocol)


def _panels(shots: int, column: Column) -> list[Panel]:
    optima = {"hard task's optimum": 1.0, "easy task's optimum": -1.0}
    titles = {"coordinate": ("first coordinate", optima), "risk": ("excess risk after one step", {})}
    lines = {key: along(column["rho"], column["points_rho"], column, key) for key in titles}
    x, m = "ρ_H (ρ_E = 1)", f"m = {shots}"
    return [panel(x, f"{words}, {m}", lines[key], heights=at) for key, (words, at) in titles.items()]


def _column(shots: int, runs: int, grid: int, steps: int) -> Column:
    eye, one = torch.eye(DIM, dtype=torch.float64), torch.ones(DIM, dtype=torch.float64)
    optima = torch.stack([one, -one])

    def environments(rho: torch.Tensor) -> torch.Tensor:
        return torch.stack([rho[:, None, None] * eye, eye.expand(len(rho), -1, -1)], 1)

    rho = torch.linspace(0.01, 1, 100, dtype=torch.float64)
    curves = compare(environments(rho), optima.expand(100, -1, -1), lr=1.0, shots=shots)
    at = torch.linspace(0.05, 0.95, grid, dtype=torch.float64)
    there = environments(at)
    exact = compare(there, optima.expand(grid, -1, -1), lr=1.0, shots=shots)
    least = compare(environments(rho.new_tensor([NEARLY_ZERO])), optima[None], lr=1.0, shots=shots)
    methods: dict[str, dict[str, Any]] = {}
    worst = ends_off = 0.0
    curvatures = {"nal": there, "maml": adapted_curvature(there, 1.0, shots)}
    for name in ("nal", "maml"):
        draw = linear.two_tasks_drawer(at, runs, DIM)
        w = linear.ends(draw, (runs, grid, DIM), name, shots, steps, seed=shots, lr=1.0)
        known, curve, start = (getattr(both, name) for both in (exact, curves, least))
        coordinate, risk = w[..., 0], excess_risk(w, there, optima.expand(grid, -1, -1), 1.0, shots)
        worst = max(worst, linear.standard_errors_off(coordinate, known.solution[:, 0]))
        level = curvatures[name].mean(1)[:, 0, 0]
        expected = linear.expected_ends(known.solution[:, 0], level, name, shots, steps)
        ends_off = max(ends_off, linear.standard_errors_off(w.mean(-1), expected))
        own: dict[str, Any] = {"coordinate": curve.solution[:, 0].tolist(), "risk": curve.risk.tolist()}
        own["nearly_zero"] = (float(start.solution[0, 0]), float(start.risk))
        for key, values in (("coordinate", coordinate), ("risk", risk)):
            own[f"{key}_points"], own[f"{key}_ci95"] = linear.intervals(values)
        own["largest_gap"] = float((coordinate.mean(0) - known.solution[:, 0]).abs().max())
        own["risk_gap"] = float((risk.mean(0) - known.risk).abs().max() / exact.nal.risk.max())
        methods[name] = own
    along_rho = {"rho": rho.tolist(), "points_rho": at.tolist()}
    return {**along_rho, "worst": worst, "ends_off": ends_off, **methods}


def _rows(shots: int, column: Column, steps: int, scale: str) -> list[Row]:
    low, high = NEARER[shots]
    nal, maml = column["nal"], column["maml"]
    nearer = all(c > 0 for c, r in zip(maml["coordinate"], column["rho"], strict=True) if low <= r <= high)
    gain = max(n / m for n, m in zip(nal["risk"], maml["risk"], strict=True))
    always, large = max(nal["coordinate"]) <= 1e-9, 10 if shots > 1000 else 1.5
    start = maml["nearly_zero"][0]
    left = [one["nearly_zero"][1] / max(one["risk"]) for one in (nal, maml)]
    what = f"m={shots}: as ρ_H → 0 (10⁻⁴) both excess risks go to zero"
    said = f"{left[0]:.4f} (NAL) and {left[1]:.4f} (MAML) of their largest"
    rows = [
        row(f"m={shots}: MAML starts nearer the hard task for ρ_H in {low}–{high}", "yes", nearer, nearer),
        row(f"m={shots}: NAL always starts nearer the easy task", "yes", always, always),
        row(f"m={shots}: largest ratio of the excess risks", "much for large m", gain, gain > large),
        row(f"m={shots}: as ρ_H → 0 (10⁻⁴) MAML goes to the easy task too", "to −1", start, start < -0.9),
        row(what, "to zero", said, max(left) < 0.05),
    ]
    if scale == "smoke":
        rows.append(linear.ends_row(f"m={shots}", column["ends_off"], steps))
    else:
        gap = max(nal["largest_gap"], maml["largest_gap"])
        what = f"m={shots}: SGD's mean coordinate from the closed form, at most"
        why = "0.15 of a range of 2: SGD on one task per iteration keeps moving between the tasks"
        rows.append(row(what, "on the curve", gap, gap < 0.15, reason=why))
    return rows
