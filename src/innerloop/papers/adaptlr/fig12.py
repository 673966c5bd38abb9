"""AdaptLR, Figure 12: deep quadratic regression with five inner steps; is the best rate positive?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from innerloop.papers.adaptlr.bernacchia import STATED
from innerloop.papers.adaptlr.fig12_runs import RATES, trained
from innerloop.plots.panels import Panel, line, panel, panels_figure
from innerloop.reproduce.parts import remembered
from innerloop.reproduce.rows import Reproduction, Row, Say, row, same_row
from innerloop.reproduce.sharing import ahead

NAME = "adaptlr-fig12"
FIXED = 0.01
Score = dict[str, Any]
"""An interval as plain data."""

READINGS = {
    "caption": ("test α", f"training α fixed at {FIXED} (caption)"),
    "axis": ("training α", f"test α fixed at {FIXED} (title and axis)"),
    "same": ("α", "the same α in training and testing"),
}


def run(scale: str, say: Say) -> Reproduction:
    """Trains once per rate and judges each network at all rates: a row, a column and the diagonal."""
    steps, episodes = {"smoke": (30, 50), "cpu": (2000, 600), "paper": (20_000, 10_000)}[scale]
    table: list[list[Score]] = []
    unadapted: list[float | None] = []
    ahead(NAME, trained, [{"rate": rate, "steps": steps, "episodes": episodes} for rate in RATES])
    for rate in RATES:
        trained_at = remembered(NAME, trained, {"rate": rate, "steps": steps, "episodes": episodes})
        table.append(trained_at["scores"])
        unadapted.append(trained_at["unadapted"])
        say(f"trained at {rate:g}: {', '.join(f'{e:.4g}' for e in _errors(table[-1]))} at {RATES}")
    data: dict[str, Any] = {"rates": RATES, "table": table, **_readings(table)}
    protocol = {
        **STATED,
        "meta-steps": steps,
        "test tasks": episodes,
        "inner steps": 5,
        "seed": 0,
        "left out of the figure": "errors above 20 times the least",
    }
    panels = [_panel(x, y, data[reading]) for reading, (x, y) in READINGS.items()]
    rows = _smoke_rows(table, unadapted, steps, episodes) if scale == "smoke" else _rows(data)
    return Reproduction(rows, {NAME: panels_figure(panels, columns=3, width=3.6)}, data, protocol)


def _readings(table: Sequence[Sequence[Score]]) -> dict[str, list[Score]]:
    """What each reading of "fixed" compares, along the rates."""
    fixed = RATES.index(FIXED)
    return {
        "caption": list(table[fixed]),
        "axis": [scores[fixed] for scores in table],
        "same": [scores[i] for i, scores in enumerate(table)],
    }


def _errors(scores: Sequence[Score]) -> list[float]:
    """Mean errors; where training failed, infinity."""
    means = (score["mean"] for score in scores)
    return [mean if mean is not None and math.isfinite(mean) else math.inf for mean in means]


def _rows(data: dict[str, Any]) -> list[Row]:
    whats = {
        "caption": f"training rate fixed at {FIXED}, other test rates (the caption): the best is positive",
        "axis": f"test rate fixed at {FIXED}, other training rates (title and axis): the best is positive",
        "same": "the same rate in training and testing: the best is positive",
    }
    reason = "the caption fixes α_t, which is on its own axis; both readings are run"
    rows = []
    for reading, what in whats.items():
        errors = _errors(data[reading])
        best = RATES[errors.index(min(errors))]
        ours = f"{best:g} (error {min(errors):.4g}; {errors[RATES.index(0.0)]:.4g} at 0)"
        rows.append(row(what, "positive", ours, best > 0, reason="" if reading == "same" else reason))
    return rows


def _smoke_rows(
    table: Sequence[Sequence[Score]], unadapted: Sequence[float | None], steps: int, episodes: int
) -> list[Row]:
    """Thirty steps teach nothing: what was computed is checked."""
    again = trained(FIXED, steps, episodes)["scores"]
    zero = RATES.index(0.0)
    at_zero = [
        (_errors([scores[zero]])[0], plain or math.inf)
        for scores, plain in zip(table, unadapted, strict=True)
    ]
    repeated = list(zip(_errors(table[RATES.index(FIXED)]), _errors(again), strict=True))
    return [
        same_row(f"training at {FIXED} once more gives the same errors", repeated),
        row(
            "a test rate of 0 gives the errors of the network without inner steps",
            "the same",
            ", ".join(f"{a:.4g}" for a, _ in at_zero),
            all(math.isclose(a, b, rel_tol=1e-5) for a, b in at_zero) and len(set(at_zero)) > 1,
            reason="computed apart; to rounding",
        ),
    ]


def _panel(x: str, y: str, scores: Sequence[Score]) -> Panel:
    errors = _errors(scores)
    kept = [i for i, error in enumerate(errors) if error < 20 * min(errors)]
    half = [scores[i]["ci95"] for i in kept]
    return panel(x, y, [line("5 steps", [RATES[i] for i in kept], [errors[i] for i in kept], half=half)])
