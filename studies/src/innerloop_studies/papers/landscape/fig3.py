"""Figure 3: excess risks and their ratio against R, for scattered and for closely packed hard tasks."""

from typing import Any

import torch

from innerloop.report.plots.panels import Panel, line, panel, panels_figure, points
from innerloop.theory.landscape.geography import Geography, geography, step_curvature
from innerloop_studies.papers.figures import along
from innerloop_studies.papers.landscape import linear
from innerloop_studies.reproduce.rows import Reproduction, Say, row

TITLE = "Landscape, Figure 3: excess risks against R for scattered and packed hard tasks"
VERSION = 1
DIM, SHOTS, RHO_HARD, RHO_EASY = 10, 500, 0.1, 0.9
RATIOS = {"(a, b) R²/r_H = 0.5": (0.5, 10.0), "(c, d) R²/r_H = 10": (10.0, 0.5)}
SIZES = {"smoke": (20, 3, 60), "cpu": (10, 8, 5000), "paper": (10, 8, 5000)}
"""Repeats, values of R with points, iterations."""


def run(scale: str, say: Say) -> Reproduction:
    """R from 0.5 to 4 with R²/r_H and R²/r_E fixed."""
    runs, grid, steps = SIZES[scale]
    panels, data = list[Panel](), dict[str, Any]()
    rows, gains = [], []
    for name, (hard, easy) in RATIOS.items():
        data[name] = case = _curves(hard, easy, runs, grid, steps)
        at, R = case["points_R"], case["R"]
        ends = ("", "_points", "_ci95")
        by_method = {m: {f"risk{end}": case[m + end] for end in ends} for m in ("nal", "maml")}
        curves = along(R, at, by_method, "risk")
        ratio = line("ratio", R, case["gain"], points=points(at, case["gain_points"]))
        panels.append(panel("R", f"{name}: excess risk", curves))
        panels.append(panel("R", "NAL's over MAML's", [ratio], limits=(0.95, 2.05)))
        gain = case["gain"][0]
        gains.append(gain)
        say(f"{name}: gain {gain:.2f} (SGD's ends {sum(case['gain_points']) / grid:.2f})")
        paper, holds = ("MAML significantly better", gain > 1.5) if hard > 1 else ("about equal", gain < 1.5)
        rows.append(row(f"{name}: ratio of the excess risks", paper, gain, holds))
        if scale == "smoke":
            rows.append(linear.ends_row(name, case["ends_off"], steps))
        else:
            off = max(abs(p / gain - 1) for p in case["gain_points"])
            what = f"{name}: empirical ratios from the closed form, at most"
            rows.append(row(what, "on the curve", off, off < 0.15))
    better = gains[1] > gains[0]
    rows.append(row("the gain is larger where hard tasks are closely packed", "yes", better))
    protocol = {
        "ρ_H, ρ_E, m, d": f"{RHO_HARD}, {RHO_EASY}, {SHOTS}, {DIM} (Figure 1's; not stated for this figure)",
        "SGD": f"{steps} iterations of one task, n₁ = 25, n₂ = m, rates as in C.1, {runs} repeats",
        "excess risk of SGD's ends": "by the closed form",
    }
    figure = panels_figure(panels, width=3.6, height=2.9, shared_legend=True)
    return Reproduction(rows, {"landscape-fig3": figure}, data, protocol)


def _curves(hard: float, easy: float, runs: int, grid: int, steps: int) -> dict[str, Any]:
    """Excess risks and their ratio: lines along ``R``, means over SGD's ends with half their intervals."""
    lr = 1 / RHO_EASY
    R, at = (torch.linspace(0.5, 4, count, dtype=torch.float64) for count in (36, grid))
    env, env_at = (Geography(DIM, RHO_HARD, RHO_EASY, r, r**2 / hard, r**2 / easy) for r in (R, at))
    curves, there = (geography(one, lr, SHOTS) for one in (env, env_at))
    a_h, a_e = (step_curvature(rho, lr, SHOTS, DIM) for rho in (RHO_HARD, RHO_EASY))
    risks: dict[str, list[float]] = {}
    ends_off = 0.0
    levels = {"nal": torch.full_like(at, (RHO_HARD + RHO_EASY) / 2), "maml": (a_h + a_e).expand(grid) / 2}
    for name in ("nal", "maml"):
        draw = linear.geography_drawer(env_at, runs, 1)
        w = linear.ends(draw, (runs, grid, DIM), name, SHOTS, steps, seed=int(10 * hard), lr=lr)
        expected = linear.expected_ends(getattr(there, name).coordinate, levels[name], name, SHOTS, steps)
        ends_off = max(ends_off, linear.standard_errors_off(w.mean(-1), expected))
        measured = linear.intervals(linear.excess_risk(w, env_at, lr, SHOTS))
        risks[name] = getattr(curves, name).risk.tolist()
        risks[f"{name}_points"], risks[f"{name}_ci95"] = measured
    gains = [n / m for n, m in zip(risks["nal_points"], risks["maml_points"], strict=True)]
    lines = {"R": R.tolist(), "points_R": at.tolist(), "gain": curves.gain.tolist()}
    return {**lines, "gain_points": gains, "ends_off": ends_off, **risks}
