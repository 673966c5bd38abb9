"""Figure 8: logistic regression, in the manner of Figure 2's column with m = 500."""

from __future__ import annotations

from typing import Any

from innerloop.reproduce.rows import Reproduction, Say, row

DIM, SHOTS, OUTER, RATE = 10, 500, 25, 4.0
SIZES = {"smoke": (2, 3, 400, 10), "cpu": (5, 8, 3000, 40), "paper": (10, 15, 5000, 200)}
"""Repeats, values of ρ_H, iterations, support sets per evaluation."""
OUTER_RATES = {"nal": 0.5, "maml": 1.0}


def run(scale: str, say: Say) -> Reproduction:
    """Two tasks with optima **1** and −**1**, the easy one with inputs of variance 1."""
    from innerloop.plots.landscape import curves_figure
    from innerloop.reproduce.parts import remembered

    runs, grid, steps, draws = SIZES[scale]
    key = {"runs": runs, "grid": grid, "steps": steps, "draws": draws, "rate": RATE, "outer": OUTER_RATES}
    found = remembered("landscape-fig8", key, lambda: _measure(runs, grid, steps, draws))
    panels: Any = [
        {
            "title": title,
            "x": "ρ_H (ρ_E = 1)",
            "curves": [
                {"name": n.upper(), "x": found["rho"], "y": found[n][what], "points": found[n][what]}
                | {"points_x": found["rho"], "ci95": found[n][f"{what}_ci95"]}
                for n in ("nal", "maml")
            ],
            "lines": {"hard": 1.0, "easy": -1.0} if what == "coordinate" else {},
            "limits": (-1.1, 1.1) if what == "coordinate" else (0.0, 1.2 * max(found["nal"]["risk"])),
        }
        for what, title in (("coordinate", "average coordinate"), ("risk", "excess risk after one step"))
    ]
    rho, nal, maml = found["rho"], found["nal"], found["maml"]
    middle = [i for i, r in enumerate(rho) if 0.1 <= r <= 0.6]
    nearer = all(maml["coordinate"][i] > nal["coordinate"][i] for i in middle)
    ratios = [nal["risk"][i] / maml["risk"][i] for i in middle]
    say("ratios of the excess risks: " + ", ".join(f"{r:.2f}" for r in ratios))
    rows = [
        row(
            "MAML starts nearer the hard task than NAL (ρ_H in 0.1–0.6)",
            "yes",
            nearer,
            nearer or scale == "smoke",
        ),
        row(
            "MAML's excess risk is smaller for suitable ρ_H; largest ratio",
            "smaller",
            max(ratios),
            max(ratios) > 1.05,
        ),
    ]
    protocol = {
        "labels": "drawn from the true logistic model with optima 1 and −1 (not stated in the paper)",
        "inner rate": f"{RATE:g} = 1/(ρ_E/4), one over the easy task's smoothness (not stated)",
        "SGD": f"{steps} iterations of one task, n₁ = 25, n₂ = {SHOTS}, rates {OUTER_RATES}, {runs} repeats",
        "excess risk": f"after a step on {SHOTS} samples, {draws} support sets; loss by quadrature",
    }
    return Reproduction(rows, {"landscape-fig8": curves_figure(panels)}, {"found": found}, protocol)


def _measure(runs: int, grid: int, steps: int, draws: int) -> dict[str, Any]:
    import torch

    from innerloop.reproduce import landscape_logistic as logistic
    from innerloop.reproduce.landscape_linear import intervals

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
