"""AdaptLR, Figure 12: deep quadratic regression with five inner steps; is the best rate positive?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from innerloop.plots.panels import Panel, line, panel, panels_figure
from innerloop.recipes.schema import Recipe
from innerloop.recipes.settings import make_recipe
from innerloop.reproduce.parts import remembered
from innerloop.reproduce.rows import Reproduction, Row, Say, row
from innerloop.reproduce.short_runs import fitted, judged

SAME = (-0.003, -0.001, 0.0, 0.001, 0.003, 0.01, 0.03)
TEST = (-0.01, -0.003, 0.0, 0.003, 0.01, 0.03)
TRAINED_AT = 0.01
Score = dict[str, Any]
"""An interval as plain data."""


def recipe_for(rate: float, steps: int, episodes: int) -> Recipe:
    """Bernacchia's quadratic tasks, a two-layer net of 60 units, five inner steps."""
    return make_recipe(
        {
            "name": "adaptlr-fig12",
            "tasks": {"family": "bernacchia-quadratic", "shots": 20, "queries": 20},
            "model": {"hidden": [60]},
            "inner": {"method": "maml", "lr": rate, "steps": 5, "test_steps": 5, "loss": "half-mse"},
            "outer": {"steps": steps, "batch": 10, "clip": 10.0},
            "eval": {"episodes": episodes},
        }
    )


def run(scale: str, say: Say) -> Reproduction:
    """Trains once per rate; the fixed strategy trains at 0.01 and varies the test rate."""
    steps, episodes = {"smoke": (30, 50), "cpu": (400, 600), "paper": (20_000, 10_000)}[scale]
    one = fitted(recipe_for(TRAINED_AT, steps, episodes))
    fixed = [judged(one, rate=rate)._asdict() for rate in TEST]
    same = []
    for rate in SAME:
        settings = {"rate": rate, "steps": steps, "episodes": episodes}
        same.append(remembered("adaptlr-fig12", _score, settings))
        say(f"same α = {rate:g}: {_errors(same)[-1]:.4g}")
    panels = [
        _panel("test α", f"trained at α = {TRAINED_AT}: error on test tasks", TEST, fixed),
        _panel("α", "the same α in training and testing", SAME, same),
    ]
    data = {"test_rates": TEST, "fixed": fixed, "same_rates": SAME, "same": same}
    protocol = {
        "meta-steps": steps,
        "test tasks": episodes,
        "net": "2-60-1",
        "inner steps": 5,
        "seed": 0,
        "convention": "½ · mean",
        "left out of the figure": "errors above 20 times the least",
    }
    rows = _rows(_best(TEST, fixed), _best(SAME, same))
    return Reproduction(rows, {"adaptlr-fig12": panels_figure(panels)}, data, protocol)


def _score(rate: float, steps: int, episodes: int) -> Score:
    return judged(fitted(recipe_for(rate, steps, episodes)))._asdict()


def _errors(scores: Sequence[Score]) -> list[float]:
    """Mean errors; where training failed, infinity."""
    means = (score["mean"] for score in scores)
    return [mean if mean is not None and math.isfinite(mean) else math.inf for mean in means]


def _best(rates: Sequence[float], scores: Sequence[Score]) -> float:
    errors = _errors(scores)
    return rates[errors.index(min(errors))]


def _rows(best_fixed: float, best_same: float) -> list[Row]:
    fixed = "training rate 0.01, other test rates: the best is positive"
    same = "the same rate in training and testing: the best is positive"
    return [
        row(fixed, "positive", best_fixed, best_fixed > 0),
        row(same, "positive", best_same, best_same > 0),
    ]


def _panel(x: str, y: str, rates: Sequence[float], scores: Sequence[Score]) -> Panel:
    errors = _errors(scores)
    kept = [i for i, error in enumerate(errors) if error < 20 * min(errors)]
    half = [scores[i]["ci95"] for i in kept]
    return panel(x, y, [line("5 steps", [rates[i] for i in kept], [errors[i] for i in kept], half=half)])
