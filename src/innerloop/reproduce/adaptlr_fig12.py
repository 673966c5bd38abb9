"""AdaptLR, Figure 12: deep quadratic regression with five inner steps; is the best rate positive?"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from innerloop.plots.panels import line, panel, panels_figure
from innerloop.recipes.schema import Recipe
from innerloop.recipes.settings import make_recipe
from innerloop.reproduce.parts import remembered
from innerloop.reproduce.rows import Reproduction, Say, row
from innerloop.reproduce.short_runs import fitted, judged

SAME = (-0.003, -0.001, 0.0, 0.001, 0.003, 0.01, 0.03)
TEST = (-0.01, -0.003, 0.0, 0.003, 0.01, 0.03)
TRAINED_AT = 0.01


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
    fixed = [judged(one, rate=rate) for rate in TEST]
    same = []
    for rate in SAME:
        key = {"rate": rate, "steps": steps, "episodes": episodes}
        same.append(remembered("adaptlr-fig12", key, partial(_score, rate, steps, episodes)))
        say(f"same α = {rate:g}: {same[-1]['mean']:.4g}")
    best_fixed = TEST[min(range(len(TEST)), key=lambda i: _or_inf(fixed[i].mean))]
    best_same = SAME[min(range(len(SAME)), key=lambda i: _or_inf(same[i]["mean"]))]
    rows = [
        row(
            "training rate 0.01, other test rates: the best is positive",
            "positive",
            best_fixed,
            best_fixed > 0,
        ),
        row(
            "the same rate in training and testing: the best is positive",
            "positive",
            best_same,
            best_same > 0,
        ),
    ]
    data: dict[str, Any] = {
        "test_rates": TEST,
        "fixed": [i._asdict() for i in fixed],
        "same_rates": SAME,
        "same": same,
    }
    keep = [i for i, value in enumerate(fixed) if value.mean < 20 * min(_or_inf(f.mean) for f in fixed)]
    kept = [
        i
        for i, value in enumerate(same)
        if _or_inf(value["mean"]) < 20 * min(_or_inf(s["mean"]) for s in same)
    ]
    panels = [
        panel(
            "test α",
            f"trained at α = {TRAINED_AT}: error on test tasks",
            [
                line(
                    "5 steps",
                    [TEST[i] for i in keep],
                    [fixed[i].mean for i in keep],
                    half=[fixed[i].ci95 for i in keep],
                )
            ],
        ),
        panel(
            "α",
            "the same α in training and testing",
            [
                line(
                    "5 steps",
                    [SAME[i] for i in kept],
                    [same[i]["mean"] for i in kept],
                    half=[same[i]["ci95"] for i in kept],
                )
            ],
        ),
    ]
    protocol = {
        "meta-steps": steps,
        "test tasks": episodes,
        "net": "2-60-1",
        "inner steps": 5,
        "seed": 0,
        "convention": "½ · mean",
        "left out of the figure": "errors above 20 times the least",
    }
    return Reproduction(rows, {"adaptlr-fig12": panels_figure(panels)}, data, protocol)


def _score(rate: float, steps: int, episodes: int) -> dict[str, Any]:
    return judged(fitted(recipe_for(rate, steps, episodes)))._asdict()


def _or_inf(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else math.inf
