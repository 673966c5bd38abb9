"""AdaptLR, Figure 10: the heuristic range H.18 with H.19 against the test loss of trained networks."""

import math
from typing import Any

from innerloop.choose.rates import advice_for
from innerloop.core.trees import count
from innerloop.experiment.parts import build
from innerloop.experiment.recipe.schema import Recipe
from innerloop.report.plots.panels import Panel, line, panels_figure
from innerloop.theory.rate.estimate import RateRange, merged_range
from innerloop_studies.papers.adaptlr.shared import QUADRATIC, STATED, errors_of, maml_recipe
from innerloop_studies.papers.figures import loglog
from innerloop_studies.papers.training import combined, fitted, judged
from innerloop_studies.reproduce.parts import compute_parts
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row, same_row

TITLE = "AdaptLR, Figure 10: the heuristic range for networks against trained ones"
VERSION = 1
_SINE: dict[str, Any] = {
    "tasks": {"family": "sine", "shots": 10, "queries": 10},
    "model": {"hidden": [40, 40], "weight_var": 1.0},
    "inner": {"loss": "mse"},
    "outer": {"batch": 25},
    "eval": {},
}
CASES = {  # families with their networks and how they are judged, and the rates to try
    # a rate under ½ · mean is twice that under the mean: the same steps are tried in both
    "(a) quadratic, 1-60-1": (QUADRATIC, (0.002, 0.006, 0.02, 0.06, 0.2, 0.6)),
    "(b) sine, 1-40-40-1": (_SINE, (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)),
}


def recipe_for(case: str, rate: float, steps: int, episodes: int) -> Recipe:
    """One-step MAML."""
    return maml_recipe("adaptlr-fig10", CASES[case][0], {"lr": rate, "steps": 1}, steps, episodes)


def scored(case: str, rate: float, steps: int, episodes: int) -> dict[str, Any]:
    """The score on test tasks of a network trained at a rate, as plain data."""
    return judged(fitted(recipe_for(case, rate, steps, episodes)))._asdict()


OUTSIDE: tuple[tuple[str, str], ...] = (("cpu", "(a)"),)
"""Scales and cases where the best rate of the grid was found outside; here half of the lower end."""

STEPS = {"smoke": (20, 20), "cpu": (2000, 500), "paper": (70_000, 70_000)}
"""Of (a), whose meta-steps have few tasks and queries, and of (b)."""


def run(scale: str, say: Say) -> Reproduction:
    """Trains at every rate of a grid; N is the meta-batch, the only number of tasks the setting names."""
    episodes = {"smoke": 50, "cpu": 600, "paper": 10_000}[scale]
    by_case: dict[str, dict[str, Any]] = {}
    for case, steps in zip(CASES, STEPS[scale], strict=True):
        by_case[case] = results = _case(case, steps, episodes)
        best, (low, high), ours = _best(results), results["h19"], results["ours"]
        say(f"{case}: best {best:g}; H.19 {low:.3g} to {high:.3g}; ours {ours.low:.3g} to {ours.high:.3g}")
    judge = _smoke_rows if scale == "smoke" else _rows
    rows = [one for case, results in by_case.items() for one in judge(case, results, scale)]
    panels = [_panel(case, results) for case, results in by_case.items()]
    protocol = {
        "meta-steps": " and ".join(str(steps) for steps in STEPS[scale]),
        "test tasks": episodes,
        "(a)": STATED,
        "(b)": "Finn et al.'s sinusoids: 10 samples to adapt to, 10 to judge on, 25 tasks a meta-step, mse",
        "inner steps": 1,
        "seed": 0,
    }
    return Reproduction(rows, {"adaptlr-fig10": panels_figure(panels)}, by_case, protocol)


def _case(case: str, steps: int, episodes: int) -> dict[str, Any]:
    """Scores along the grid, and both ranges."""
    setting, grid = CASES[case]
    jobs = combined(case=[case], rate=grid, steps=[steps], episodes=[episodes])
    scores = list(compute_parts("adaptlr-fig10", VERSION, scored, jobs))
    parts = build(recipe_for(case, 0.01, steps, episodes))
    tasks, shots = setting["outer"]["batch"], setting["tasks"]["shots"]
    h19, advice = merged_range(tasks, shots, count(parts.params), **setting["inner"]), advice_for(parts)
    given = {"rates": grid, "scores": scores, "h19": h19, "ours": RateRange(advice.low, advice.high)}
    return {**given, "steps": steps, "episodes": episodes}


def _best(results: dict[str, Any]) -> float:
    """The rate of the grid with the least error."""
    errors = errors_of(results["scores"])
    return float(results["rates"][errors.index(min(errors))])


def _smoke_rows(case: str, results: dict[str, Any], _: str) -> list[Row]:
    """Twenty steps teach nothing: what was computed is checked."""
    asked = results["steps"], results["episodes"]
    again = [scored(case, rate, *asked)["mean"] for rate in results["rates"][:2]]
    pairs = list(zip(errors_of(results["scores"])[:2], again, strict=True))
    return [same_row(f"{case}: training once more gives the same errors, at two rates", pairs)]


def _rows(case: str, results: dict[str, Any], scale: str) -> list[Row]:
    best, (low, high), ours = _best(results), results["h19"], results["ours"]
    tasks = CASES[case][0]["outer"]["batch"]
    theirs = f"{case}: the range of H.18 and H.19 contains the best rate"
    said, inside = f"{low:.3g} to {high:.3g}; best of the grid {best:g}", low <= best <= high
    why = f"N is arbitrary: {tasks} tasks a meta-step here; half a decade between rates"
    what = f"{case}: ours, half to eight times H.1 on tangent features, contains it"
    return [
        row(theirs, "contains it", said, inside, expected=(scale, case[:3]) not in OUTSIDE, reason=why),
        row(what, "–", f"{ours.low:.3g} to {ours.high:.3g}", ours.low <= best <= ours.high),
    ]


def _panel(case: str, results: dict[str, Any]) -> Panel:
    errors = errors_of(results["scores"])
    finite = [i for i, error in enumerate(errors) if math.isfinite(error)]
    half = [results["scores"][i]["ci95"] for i in finite]
    rates = [results["rates"][i] for i in finite]
    curve = line(f"{results['steps']} meta-steps", rates, [errors[i] for i in finite], half=half)
    return loglog("α", f"{case}: error after one step (shaded: H.19)", [curve], span=results["h19"])
