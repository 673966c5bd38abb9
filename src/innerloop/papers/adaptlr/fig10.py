"""AdaptLR, Figure 10: the heuristic range H.18 with H.19 against the test loss of trained networks."""

from __future__ import annotations

import math
from typing import Any

from innerloop.core.trees import count
from innerloop.experiment.parts import build
from innerloop.experiment.rates.auto import advice_for
from innerloop.papers.adaptlr.bernacchia import STATED
from innerloop.papers.adaptlr.fig10_runs import CASES, recipe_for, scored
from innerloop.plots.panels import Panel, line, panel, panels_figure
from innerloop.reproduce.parts import remembered
from innerloop.reproduce.rows import Reproduction, Row, Say, row, same_row
from innerloop.reproduce.sharing import ahead
from innerloop.theory.rate.estimate import merged_range

OUTSIDE: tuple[tuple[str, str], ...] = (("cpu", "(a)"),)
"""Scales and cases where the best rate of the grid was found outside; here half of the lower end."""

STEPS = {"smoke": (20, 20), "cpu": (2000, 500), "paper": (70_000, 70_000)}
"""Of (a), whose meta-steps have few tasks and queries, and of (b)."""


def run(scale: str, say: Say) -> Reproduction:
    """Trains at every rate of a grid; N is the meta-batch, the only number of tasks the setting names."""
    episodes = {"smoke": 50, "cpu": 600, "paper": 10_000}[scale]
    data = {}
    for case, steps in zip(CASES, STEPS[scale], strict=True):
        data[case] = _case(case, steps, episodes)
        (low, high), ours = data[case]["h19"], data[case]["ours"]
        best = _best(data[case])
        say(f"{case}: best {best:g}; H.19 {low:.3g} to {high:.3g}; ours {ours[0]:.3g} to {ours[1]:.3g}")
    smoke = scale == "smoke"
    rows = [
        one
        for c, results in data.items()
        for one in (_smoke_rows(c, results) if smoke else _rows(c, results, scale))
    ]
    panels = [_panel(case, results) for case, results in data.items()]
    protocol = {
        "meta-steps": " and ".join(str(steps) for steps in STEPS[scale]),
        "test tasks": episodes,
        "(a)": STATED,
        "(b)": "Finn et al.'s sinusoids: 10 samples to adapt to, 10 to judge on, 25 tasks a meta-step, mse",
        "inner steps": 1,
        "seed": 0,
    }
    return Reproduction(rows, {"adaptlr-fig10": panels_figure(panels)}, data, protocol)


def _case(case: str, steps: int, episodes: int) -> dict[str, Any]:
    """Scores along the grid, and both ranges."""
    setting = CASES[case]
    parts_of = [{"case": case, "rate": rate, "steps": steps, "episodes": episodes} for rate in setting.grid]
    ahead("adaptlr-fig10", scored, parts_of)
    scores = [remembered("adaptlr-fig10", scored, settings) for settings in parts_of]
    parts = build(recipe_for(case, 0.01, steps, episodes))
    h19 = merged_range(setting.batch, setting.shots, count(parts.params), loss=setting.loss)
    ours = advice_for(parts)
    return {
        "rates": setting.grid,
        "scores": scores,
        "h19": list(h19),
        "ours": [ours.low, ours.high],
        "steps": steps,
        "episodes": episodes,
    }


def _errors(results: dict[str, Any]) -> list[float]:
    """Mean errors along the grid; where training failed, infinity."""
    means = (score["mean"] for score in results["scores"])
    return [mean if mean is not None and math.isfinite(mean) else math.inf for mean in means]


def _best(results: dict[str, Any]) -> float:
    errors = _errors(results)
    return float(results["rates"][errors.index(min(errors))])


def _smoke_rows(case: str, results: dict[str, Any]) -> list[Row]:
    """Twenty steps teach nothing: what was computed is checked."""
    again = [
        scored(case, rate, results["steps"], results["episodes"])["mean"] for rate in results["rates"][:2]
    ]
    pairs = list(zip(_errors(results)[:2], again, strict=True))
    return [same_row(f"{case}: training once more gives the same errors, at two rates", pairs)]


def _rows(case: str, results: dict[str, Any], scale: str) -> list[Row]:
    best, (low, high), ours = _best(results), results["h19"], results["ours"]
    return [
        row(
            f"{case}: the range of H.18 and H.19 contains the best rate",
            "contains it",
            f"{low:.3g} to {high:.3g}; best of the grid {best:g}",
            low <= best <= high,
            expected=(scale, case[:3]) not in OUTSIDE,
            reason=f"N is arbitrary: {CASES[case].batch} tasks a meta-step here; half a decade between rates",
        ),
        row(
            f"{case}: ours, half to eight times H.1 on tangent features, contains it",
            "–",
            f"{ours[0]:.3g} to {ours[1]:.3g}",
            ours[0] <= best <= ours[1],
        ),
    ]


def _panel(case: str, results: dict[str, Any]) -> Panel:
    errors, (low, high) = _errors(results), results["h19"]
    finite = [i for i, error in enumerate(errors) if math.isfinite(error)]
    half = [results["scores"][i]["ci95"] for i in finite]
    rates = [results["rates"][i] for i in finite]
    curve = line(f"{results['steps']} meta-steps", rates, [errors[i] for i in finite], half=half)
    title = f"{case}: error after one step (shaded: H.19)"
    return panel("α", title, [curve], span=(low, high), log_x=True, log_y=True)
