"""Table 3: up-weighting hard tasks brings NAL towards MAML."""

import itertools
from typing import Any

from innerloop.report.plots.panels import Line, Panel, line, panel, panels_figure, points
from innerloop.theory.landscape.geography import Geography
from innerloop.training.task_weights import hard_weights
from innerloop_studies.papers.figures import INKS
from innerloop_studies.papers.landscape import linear
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, listed, row

TITLE = "Landscape, Table 3: up-weighting hard tasks"
VERSION = 1
DIM, INNER_SHOTS, TASKS = 10, 500, 10
RHO_HARD, RHO_EASY, R, SPREAD = 0.1, 1.0, 2.0, 1.0
PUBLISHED = {  # average coordinate and its standard deviation over 5 trials, test error and its
    "NAL": (0.18, 0.02, 0.78, 0.11),
    "NAL, ζ = 2": (0.33, 0.02, 0.64, 0.08),
    "NAL, ζ = 5": (0.61, 0.03, 0.51, 0.04),
    "NAL, ζ = 10": (0.87, 0.03, 0.39, 0.05),
    "MAML": (1.58, 0.01, 0.26, 0.10),
}
SIZES = {"smoke": (5, 400), "cpu": (5, 4000), "paper": (5, 4000)}  # trials, iterations
TEST_SHOTS = (2000, 500)
TICKS = ["NAL", "ζ = 2", "ζ = 5", "ζ = 10", "MAML"]


def run(scale: str, say: Say) -> Reproduction:
    """4000 iterations of 10 tasks, 5 trials; n₁ = 25 outer and n₂ = 500 inner samples."""
    trials, steps = SIZES[scale]
    by_method = {name: _trials(name, trials, steps, i) for i, name in enumerate(PUBLISHED)}
    for name, values in by_method.items():
        say(f"{name}: coordinate {values['coordinate']:.3f} ± {values['deviation']:.3f}, {values['errors']}")
    protocol = {
        "environment": f"d = {DIM}, ρ_H = {RHO_HARD}, ρ_E = {RHO_EASY}, optima N(2, I), N(0, I), ν² = 0.01",
        "samples": "n₂ = 500 inner, n₁ = 25 outer: the text has them swapped (25 inner cannot give 1.58)",
        "inner rate": "1/ρ_E = 1: not stated in the paper",
        "SGD": f"{steps} iterations of {TASKS} tasks, rates 0.05 (MAML) and 0.025 (NAL), {trials} trials",
        "ζ": "weights normalised within each batch of 10 tasks",
        "test error": "excess risk in closed form; test samples are not stated: m = 2000 and 500",
    }
    figure = panels_figure(_panels(by_method), width=3.6, height=2.9, shared_legend=True)
    rows, figures = _rows(by_method, trials, scale), {"landscape-table3": figure}
    return Reproduction(rows, figures, {"found": by_method}, protocol)


def _panels(by_method: dict[str, dict[str, Any]]) -> list[Panel]:
    mine = [by_method[name] for name in PUBLISHED]
    coordinate, deviation, error, spread = (list(column) for column in zip(*PUBLISHED.values(), strict=True))
    coordinates = [
        _points("ours", [one["coordinate"] for one in mine], [one["deviation"] for one in mine]),
        _points("published", coordinate, deviation),
    ]
    errors = [_points(f"ours, m = {m}", [one["errors"][str(m)] for one in mine]) for m in TEST_SHOTS]
    published = _points("published", error, spread)
    return [
        panel("", "average coordinate (2: hard tasks, 0: easy ones)", coordinates, ticks=TICKS),
        panel("", "test error", [*errors, published], ticks=TICKS),
    ]


def _points(name: str, y: list[float], spread: list[float] | None = None) -> Line:
    shift = 0.09 if name == "published" else -0.09
    measured = points([i + shift for i in range(len(y))], y, spread or [0.0] * len(y))
    return line(name, [], [], ink=INKS.get(name) or INKS[name.split(",")[0]], points=measured)


def _trials(name: str, trials: int, steps: int, seed: int) -> dict[str, Any]:
    """The average coordinate and its deviation over trials, and test errors by number of samples."""
    env = Geography(DIM, RHO_HARD, RHO_EASY, R, SPREAD, SPREAD)
    zeta = float(name.partition("= ")[2] or 1)
    method = "maml" if name == "MAML" else "nal"
    asked = {"lr": 1 / RHO_EASY, "weigh": lambda tasks: hard_weights(tasks.rho < 0.5, zeta).double()}
    draw, shape = linear.geography_drawer(env, trials, TASKS), (trials, 1, DIM)
    w = linear.ends(draw, shape, method, INNER_SHOTS, steps, seed, **asked)[:, 0]
    errors = {str(m): float(linear.excess_risk(w, env, 1 / RHO_EASY, m).mean()) for m in TEST_SHOTS}
    mean = w.mean(-1)
    return {"coordinate": float(mean.mean()), "deviation": float(mean.std()), "errors": errors}


def _rows(by_method: dict[str, dict[str, Any]], trials: int, scale: str) -> list[Row]:
    rows = []
    for name, (coordinate, deviation, error, spread) in PUBLISHED.items() if scale != "smoke" else ():
        mine = by_method[name]
        shown = f"{mine['coordinate']:.3f} ± {mine['deviation']:.3f} over {trials} trials"
        rows.append(_near(f"{name}: average coordinate", coordinate, deviation, mine["coordinate"], shown))
        for m, value in mine["errors"].items():
            rows.append(_near(f"{name}: test error at m = {m}", error, spread, value, f"{value:.3f}"))
    order = [by_method[name]["coordinate"] for name in PUBLISHED]
    falls = [by_method[name]["errors"]["2000"] for name in PUBLISHED]
    rising = all(a < b for a, b in itertools.pairwise(order))
    falling = all(a > b for a, b in itertools.pairwise(falls))
    shown = listed(order, ".2f", " → ")
    rows.append(row("the coordinate rises with ζ, and MAML's is largest", "0.18 → 0.87, 1.58", shown, rising))
    shown = listed(falls, ".2f", " → ")
    rows.append(row("the test error falls alike (m = 2000)", "0.78 → 0.39, 0.26", shown, falling))
    return rows


def _near(what: str, published: float, deviation: float, ours: float, shown: str) -> Row:
    """A row that says by which rule it holds, and how far off the number is."""
    off, why = abs(ours - published) / deviation, WHY["error" if "error" in what else "coordinate"]
    within, said = f"{what}, within {DEVIATIONS} published deviations", f"{shown} ({off:.1f} deviations off)"
    paper, expected = f"{published} ± {deviation}", what not in FAR
    return row(within, paper, said, off <= DEVIATIONS, expected=expected, reason=why)


DEVIATIONS = 2
_SWAPPED = "n₁ = 25 and n₂ = 500, which C.1 prints the other way round; the inner rate, not stated, is 1/ρ_E"
WHY = {  # what is not as published, or not published
    "coordinate": _SWAPPED,
    "error": f"{_SWAPPED}; the number of test samples m is not stated, and our errors are larger at both",
}
FAR = (*(f"NAL, ζ = {z}: test error at m = 500" for z in (2, 5, 10)), "NAL, ζ = 5: test error at m = 2000")
"""What was found further away than that."""
