"""Figure 8: logistic regression, in the manner of Figure 2's column with m = 500."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from innerloop.reproduce.rows import Reproduction, Row, Say, row

if TYPE_CHECKING:
    from innerloop.plots.panels import Panel

DIM, SHOTS, OUTER, RATE = 10, 500, 25, 4.0
SIZES = {"smoke": (2, 3, 400, 10), "cpu": (5, 8, 3000, 40), "paper": (10, 15, 5000, 200)}
"""Repeats, values of ρ_H, iterations, support sets per evaluation."""
OUTER_RATES = {"nal": 0.5, "maml": 1.0}


def run(scale: str, say: Say) -> Reproduction:
    """Two tasks with optima **1** and −**1**, the easy one with inputs of variance 1."""
    from innerloop.plots.panels import panels_figure
    from innerloop.reproduce.parts import remembered

    runs, grid, steps, draws = SIZES[scale]
    settings = {"runs": runs, "grid": grid, "steps": steps, "draws": draws}
    ends = remembered("landscape-fig8", _measure, settings)
    say("ratios of the excess risks: " + ", ".join(f"{r:.2f}" for r in _ratios(ends)))
    protocol = {
        "labels": "drawn from the true logistic model with optima 1 and −1 (not stated in the paper)",
        "inner rate": f"{RATE:g} = 1/(ρ_E/4), one over the easy task's smoothness (not stated)",
        "SGD": f"{steps} iterations of one task, n₁ = 25, n₂ = {SHOTS}, rates {OUTER_RATES}, {runs} repeats",
        "excess risk": f"after a step on {SHOTS} samples, {draws} support sets; loss by quadrature",
    }
    figures = {"landscape-fig8": panels_figure(_panels(ends), width=3.6, height=2.9, shared_legend=True)}
    return Reproduction(_rows(ends), figures, {"found": ends}, protocol)


def _middle(ends: dict[str, Any]) -> list[int]:
    """The places of the grid that the statements are about."""
    return [i for i, rho in enumerate(ends["rho"]) if 0.1 <= rho <= 0.6]


def _ratios(ends: dict[str, Any]) -> list[float]:
    return [ends["nal"]["risk"][i] / ends["maml"]["risk"][i] for i in _middle(ends)]


def _rows(ends: dict[str, Any]) -> list[Row]:
    nal, maml = ends["nal"]["coordinate"], ends["maml"]["coordinate"]
    nearer, ratio = all(maml[i] > nal[i] for i in _middle(ends)), max(_ratios(ends))
    start = "MAML starts nearer the hard task than NAL (ρ_H in 0.1–0.6)"
    risk = "MAML's excess risk is smaller for suitable ρ_H; largest ratio"
    return [
        row(start, "yes", nearer, nearer),
        row(risk, "smaller", ratio, ratio > 1.05),
    ]


def _panels(ends: dict[str, Any]) -> list[Panel]:
    from innerloop.plots.landscape import INKS
    from innerloop.plots.panels import Line, line, panel, points

    def curve(method: str, what: str) -> Line:
        """One method's line, with its points."""
        values, rho, name = ends[method], ends["rho"], method.upper()
        measured = points(rho, values[what], values[f"{what}_ci95"])
        return line(name, rho, values[what], ink=INKS[name], points=measured)

    def one(what: str, title: str, heights: dict[str, float], limits: tuple[float, float]) -> Panel:
        """A panel with both methods."""
        curves = [curve(method, what) for method in ("nal", "maml")]
        return panel("ρ_H (ρ_E = 1)", title, curves, heights=heights, limits=limits)

    top = 1.2 * max(ends["nal"]["risk"])
    return [
        one("coordinate", "average coordinate", {"hard": 1.0, "easy": -1.0}, (-1.1, 1.1)),
        one("risk", "excess risk after one step", {}, (0.0, top)),
    ]


def _measure(runs: int, grid: int, steps: int, draws: int) -> dict[str, Any]:
    import torch

    from innerloop.papers.landscape import logistic
    from innerloop.papers.landscape.linear import intervals

    rho = torch.linspace(0.05, 0.95, grid, dtype=torch.float64)
    scales = rho.expand(runs, -1)
    one = torch.ones(runs, grid, DIM, dtype=torch.float64)
    out: dict[str, Any] = {"rho": rho.tolist()}
    for i, method in enumerate(("nal", "maml")):
        w = logistic.sgd(method, scales, DIM, RATE, OUTER_RATES[method], (SHOTS, OUTER), steps, seed=i)
        hard = logistic.risk(w, scales, one, RATE, SHOTS, draws, seed=7)
        easy = logistic.risk(w, torch.ones_like(scales), -one, RATE, SHOTS, draws, seed=8)
        out[method] = {}
        for what, values in (("coordinate", w.mean(-1)), ("risk", (hard + easy) / 2)):
            out[method][what], out[method][f"{what}_ci95"] = intervals(values)
    return out
