"""AdaptLR, Figures 1 and 7: the trajectory of w_m(α) in the plane, its distance to the optima."""

from typing import Any

import torch

from innerloop.report.plots.panels import Panel, line, mark, panel, panels_figure
from innerloop.theory.rate import bounds, limit_moments, task_sums, trajectory
from innerloop_studies.papers.adaptlr.shared import Law, seeded
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row

TITLE = "AdaptLR, Figures 1 and 7: the trajectory of w_m(α) and its distance to the task optima"
VERSION = 1
SAMPLES = 50
CASES = {
    "Figure 1": (Law("uniform", -5, 5), Law("uniform", -5, 5)),
    "Figure 7, centred data": (Law("normal", 0, 2), Law("normal", 0, 3**0.5)),
    "Figure 7, uncentred data": (Law("uniform", 0, 5), Law("normal", 0, 3**0.5)),
}


def run(scale: str, say: Say) -> Reproduction:
    """All three cases; the newcomers are twenty tasks in one corner whose inputs are three times as large."""
    tasks = {"smoke": 200, "cpu": 500, "paper": 500}[scale]
    data = {name: _case(*laws, tasks, seed=i) for i, (name, laws) in enumerate(CASES.items())}
    for name, case in data.items():
        say(f"{name}: least mean distance at α = {case['nearest']:.4g}, α*_lim = {case['limit']:.4g}")
    rows = [one for case in data.items() for one in _rows(*case)]
    panels = [one for case in data.items() for one in _panels(*case)]
    protocol = {"tasks": tasks, "newcomers": 20, "samples": SAMPLES, "seeds": "0, 1, 2 (one draw each)"}
    return Reproduction(rows, {"adaptlr-fig1": panels_figure(panels)}, data, protocol)


def _case(inputs: Law, optima: Law, tasks: int, seed: int) -> dict[str, Any]:
    """The trajectory over a grid of rates, mean distances to the optima along it, and both at α*_lim."""
    made = seeded(seed)
    features = torch.cat([inputs.draw(made, tasks, SAMPLES, 2), 3 * inputs.draw(made, 20, SAMPLES, 2)])
    corner = 4 + Law("normal", 0, 0.3).draw(made, 20, 2)
    a = torch.cat([optima.draw(made, tasks, 2), corner])
    highest = bounds(features[:tasks]).high
    limit = limit_moments(features).rate
    rates = torch.linspace(0, highest, 81, dtype=features.dtype).tolist()
    *path, at_limit = trajectory(task_sums(features, a), [*rates, limit])
    *distance, limit_distance = (float((w - a).norm(dim=1).mean()) for w in (*path, at_limit))
    nearest = min(range(len(rates)), key=distance.__getitem__)
    along = {"rates": rates, "path": [w.tolist() for w in path], "distance": distance, "optima": a.tolist()}
    there = {"limit": limit, "at_limit": at_limit.tolist(), "limit_distance": limit_distance}
    return {**along, **there, "nearest": rates[nearest], "laws": f"x ~ {inputs}, a ~ {optima}"}


def _rows(name: str, case: dict[str, Any]) -> list[Row]:
    (start, next_one, *_), best, there = case["distance"], min(case["distance"]), case["limit_distance"]
    falls = f"{name}: mean distance to task optima falls as α leaves 0"
    gains = f"{name}: w_m(α*_lim) takes most of the possible gain in distance"
    share = (start - there) / (start - best) if start > best else 0.0
    at = f"nearest at α = {case['nearest']:.4g}, α*_lim = {case['limit']:.4g}"
    said = f"{100 * share:.0f} % of the gain; {at}"
    why = "holds if α*_lim has more than half of the largest gain; the paper shows no number"
    return [
        row(falls, "falls", f"{start:.4f} → {next_one:.4f}", next_one < start),
        row(gains, "α*_lim is the nearest point", said, share > 0.5, reason=why),
    ]


def _panels(name: str, case: dict[str, Any]) -> list[Panel]:
    (x, y), (px, py) = (zip(*case[key], strict=True) for key in ("optima", "path"))
    curves = [line("task optima", x, y, dots=True), line("w_m(α)", px, py)]
    marks = [mark("w_r (α = 0)", px[0], py[0]), mark("w_m(α*_lim)", *case["at_limit"])]
    distance, limit = line("w_m(α)", case["rates"], case["distance"]), mark("α*_lim", case["limit"])
    return [
        panel("first coordinate", f"{name}: {case['laws']}", curves, marks),
        panel("α", "mean distance to the task optima", [distance], [limit]),
    ]
