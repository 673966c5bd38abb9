"""AdaptLR, Figure 12: deep quadratic regression with five inner steps; is the best rate positive?"""

import math
from typing import Any

from innerloop.experiment.recipe.schema import Recipe
from innerloop.report.plots.panels import line, panel, panels_figure
from innerloop_studies.papers.adaptlr.shared import QUADRATIC, STATED, Score, errors_of, maml_recipe
from innerloop_studies.papers.training import combined, fitted, judged
from innerloop_studies.reproduce.parts import compute_parts
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, listed, row, same_row

TITLE = "AdaptLR, Figure 12: deep quadratic regression, is the best rate positive?"
VERSION = 1
RATES = (-0.01, -0.003, -0.001, 0.0, 0.001, 0.003, 0.01, 0.03)


def recipe_for(rate: float, steps: int, episodes: int) -> Recipe:
    """Bernacchia's quadratic tasks, a two-layer net of 60 units, five inner steps."""
    inner = {"lr": rate, "steps": 5, "test_steps": 5}
    return maml_recipe("adaptlr-fig12", QUADRATIC, inner, steps, episodes)


def trained(rate: float, steps: int, episodes: int) -> dict[str, Any]:
    """Scores on test tasks at every test rate, as plain data, and the mean without any inner step."""
    network = fitted(recipe_for(rate, steps, episodes))
    scores = [judged(network, rate=other)._asdict() for other in RATES]
    return {"scores": scores, "unadapted": judged(network, steps=0).mean}


NAME = "adaptlr-fig12"
FIXED = 0.01
READINGS = {
    "caption": ("test α", f"training α fixed at {FIXED} (caption)"),
    "axis": ("training α", f"test α fixed at {FIXED} (title and axis)"),
    "same": ("α", "the same α in training and testing"),
}


def run(scale: str, say: Say) -> Reproduction:
    """Trains once per rate and judges each network at all rates: a row, a column and the diagonal."""
    steps, episodes = {"smoke": (30, 50), "cpu": (2000, 600), "paper": (20_000, 10_000)}[scale]
    table, unadapted = list[list[Score]](), list[float | None]()
    jobs = combined(rate=RATES, steps=[steps], episodes=[episodes])
    for rate, trained_at in zip(RATES, compute_parts(NAME, VERSION, trained, jobs), strict=True):
        table.append(trained_at["scores"])
        unadapted.append(trained_at["unadapted"])
        say(f"trained at {rate:g}: {listed(errors_of(table[-1]), '.4g')} at {RATES}")
    by_reading = _readings(table)
    panels = []
    for reading, (x, y) in READINGS.items():
        errors, half = errors_of(by_reading[reading]), [score["ci95"] for score in by_reading[reading]]
        kept = [i for i, error in enumerate(errors) if error < 20 * min(errors)]
        at, y_kept, spread = ([values[i] for i in kept] for values in (RATES, errors, half))
        panels.append(panel(x, y, [line("5 steps", at, y_kept, half=spread)]))
    protocol = {**STATED, "meta-steps": steps, "test tasks": episodes, "inner steps": 5, "seed": 0}
    protocol["left out of the figure"] = "errors above 20 times the least"
    rows = _smoke_rows(table, unadapted, steps, episodes) if scale == "smoke" else _rows(by_reading)
    data, figure = {"rates": RATES, "table": table, **by_reading}, panels_figure(panels, columns=3, width=3.6)
    return Reproduction(rows, {NAME: figure}, data, protocol)


def _readings(table: list[list[Score]]) -> dict[str, list[Score]]:
    """What each reading of "fixed" compares, along the rates."""
    fixed = RATES.index(FIXED)
    return {
        "caption": table[fixed],
        "axis": [scores[fixed] for scores in table],
        "same": [scores[i] for i, scores in enumerate(table)],
    }


def _rows(by_reading: dict[str, list[Score]]) -> list[Row]:
    whats = {
        "caption": f"training rate fixed at {FIXED}, other test rates (the caption): the best is positive",
        "axis": f"test rate fixed at {FIXED}, other training rates (title and axis): the best is positive",
        "same": "the same rate in training and testing: the best is positive",
    }
    reason = "the caption fixes α_t, which is on its own axis; both readings are run"
    rows = []
    for reading, what in whats.items():
        errors = errors_of(by_reading[reading])
        best = RATES[errors.index(min(errors))]
        ours = f"{best:g} (error {min(errors):.4g}; {errors[RATES.index(0.0)]:.4g} at 0)"
        rows.append(row(what, "positive", ours, best > 0, reason="" if reading == "same" else reason))
    return rows


def _smoke_rows(
    table: list[list[Score]], unadapted: list[float | None], steps: int, episodes: int
) -> list[Row]:
    """Thirty steps teach nothing: what was computed is checked."""
    again = trained(FIXED, steps, episodes)["scores"]
    zero = RATES.index(0.0)
    adapted = errors_of([scores[zero] for scores in table])
    at_zero = [(a, b or math.inf) for a, b in zip(adapted, unadapted, strict=True)]
    repeated = list(zip(errors_of(table[RATES.index(FIXED)]), errors_of(again), strict=True))
    what = "a test rate of 0 gives the errors of the network without inner steps"
    holds = all(math.isclose(a, b, rel_tol=1e-5) for a, b in at_zero) and len(set(at_zero)) > 1
    return [
        same_row(f"training at {FIXED} once more gives the same errors", repeated),
        row(what, "the same", listed(adapted, ".4g"), holds, reason="computed apart; to rounding"),
    ]
