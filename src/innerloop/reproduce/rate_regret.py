"""How much ``inner.lr=auto`` loses against the best of a grid of fixed rates, on problems it was not made on.

Quick Draw and CIFAR-FS with ANIL and a strided Conv4-32: with and without normalisation, 1 and 5 inner
steps, 5-way 1-shot, and 20-way on Quick Draw; two seeds. Every training run is kept under
``runs/reproduce-parts``: interrupted, the command goes on where it was.
"""

from __future__ import annotations

import math
import os
import statistics
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from innerloop.core.errors import UserError
from innerloop.plots.panels import line, mark, panel, panels_figure
from innerloop.reproduce.parts import remembered, two_at_a_time
from innerloop.reproduce.rows import Reproduction, Row, Say, row

NAME = "rate-regret"
PART = "INNERLOOP_REGRET_CASES"
"""Environment: look at the first so many cases only."""

GRID = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
SIZES = {
    # meta-steps, tasks per step, test tasks, seeds
    "smoke": (4, 2, 10, 1),
    "cpu": (150, 2, 200, 2),
    "paper": (2000, 4, 1000, 2),
}


class Case(NamedTuple):
    """One problem."""

    data: str
    ways: int
    norm: str
    steps: int

    def __str__(self) -> str:
        layer = "no normalisation" if self.norm == "none" else "batch norm"
        return (
            f"{self.data}, {self.ways}-way 1-shot, {layer}, {self.steps} step{'s' if self.steps > 1 else ''}"
        )


def cases(scale: str) -> list[Case]:
    """All twelve; at smoke scale two on the embedded glyphs."""
    if scale == "smoke":
        return [Case("glyphs", 5, norm, 1) for norm in ("transductive", "none")]
    kinds = (("quickdraw", 5), ("cifar-fs", 5), ("quickdraw", 20))
    return [
        Case(data, ways, norm, steps)
        for steps in (1, 5)
        for norm in ("transductive", "none")
        for data, ways in kinds
    ]


def run(scale: str, say: Say) -> Reproduction:
    """Trains at every rate of the grid and at ``auto``; two runs at a time, one thread each."""
    steps, batch, tests, seeds = SIZES[scale]
    chosen = cases(scale)
    for case in chosen:
        source(case.data)  # missing data are told at once
    chosen = chosen[: int(os.environ.get(PART, "0")) or None]
    jobs = [(case, rate, seed, scale) for case in chosen for seed in range(seeds) for rate in ("auto", *GRID)]
    results: dict[tuple[Case, Any, int], dict[str, Any]] = {}
    for job, found in two_at_a_time(_part, jobs):
        results[job[:3]] = found
        say(f"{job[0]}, seed {job[2]}, {job[1]}: {found['accuracy']:.3f} (rate {found['rate']:.3g})")
    table = [_summary(case, results, seeds) for case in chosen]
    protocol = {
        "meta-steps": steps,
        "batch": batch,
        "test tasks": tests,
        "seeds": seeds,
        "grid": list(GRID),
        "net": "strided Conv4-32",
        "cases run": f"{len(chosen)} of {len(cases(scale))}",
    }
    panels = [_panel(entry) for entry in table]
    figure = panels_figure(panels, columns=min(4, len(panels)), width=3.4, height=2.8)
    return Reproduction(
        _rows(table, scale), {NAME: figure}, {"table": [_plain(entry) for entry in table]}, protocol
    )


def _rows(table: list[dict[str, Any]], scale: str) -> list[Row]:
    if scale == "smoke":  # four meta-steps rank no rates: this scale only shows that everything runs
        every = [value for entry in table for value in (*entry["scores"], entry["auto"])]
        fine = all(0 <= value <= 1 for value in every)
        return [row("accuracies lie between 0 and 1", "yes", [min(every), max(every)], fine)]
    recorded = scale == "cpu"
    rows = [
        row(
            str(entry["case"]),
            "best of the grid",
            f"auto {entry['auto']:.3f} (rate {entry['rate']:.3g}), best {entry['best']:.3f} "
            f"at {entry['at']:g}: regret {100 * entry['regret']:.1f} points",
            entry["regret"] <= WORST,
            expected=not (recorded and entry["case"] in FAR_OFF),
            reason="holds if within 3 points of the best fixed rate, which is chosen with hindsight",
        )
        for entry in table
    ]
    for what, key in (
        ("median regret within 1 point, worst within 3", "regret"),
        (
            "the same, had the rate not been divided by the steps (between grid rates, in hindsight)",
            "undivided",
        ),
    ):
        regrets = [entry[key] for entry in table]
        middle, worst = statistics.median(regrets), max(regrets)
        said = f"median {100 * middle:.1f}, worst {100 * worst:.1f} points"
        rows.append(row(what, "aim", said, middle <= MEDIAN and worst <= WORST, expected=not recorded))
    return rows


MEDIAN, WORST = 0.01, 0.03
FAR_OFF = (
    Case("cifar-fs", 5, "none", 1),
    Case("quickdraw", 5, "transductive", 5),
    Case("cifar-fs", 5, "none", 5),
)
"""Where ``auto`` was more than three points below the best rate at ``cpu``."""


def _part(job: tuple[Case, Any, int, str]) -> dict[str, Any]:
    case, rate, seed, scale = job
    key = {"case": case._asdict(), "rate": rate, "seed": seed, "sizes": SIZES[scale]}
    found = remembered(NAME, key, lambda: _trained(case, rate, seed, scale))
    return dict(found)


def _trained(case: Case, rate: Any, seed: int, scale: str) -> dict[str, Any]:
    from innerloop.recipes.settings import make_recipe
    from innerloop.reproduce.short_runs import fitted, judged

    steps, batch, tests, _ = SIZES[scale]
    recipe = make_recipe(
        {
            "name": NAME,
            "data": {"name": source(case.data)},
            "tasks": {"family": "few-shot", "ways": case.ways, "shots": 1, "queries": 5},
            "model": {"kind": "conv4", "filters": 32, "pooling": "stride", "norm": case.norm},
            "inner": {"method": "anil", "lr": rate, "steps": case.steps, "loss": "cross-entropy"},
            "outer": {"steps": steps, "batch": batch, "lr": 3e-3, "clip": 10.0},
            "eval": {"episodes": tests},
            "run": {"seed": seed, "threads": 1},
        }
    )
    found = fitted(recipe)
    score = judged(found)
    chance = 1 / case.ways
    diverged = not math.isfinite(score.mean)  # in training, or when it adapts: worth a guess
    return {
        "accuracy": chance if diverged else score.mean,
        "ci95": score.ci95,
        "rate": found.recipe.inner.lr,
        "diverged": diverged,
    }


def _summary(case: Case, results: dict[tuple[Case, Any, int], dict[str, Any]], seeds: int) -> dict[str, Any]:
    """Means over seeds; the best rate of the grid is chosen on the same test tasks, which favours it."""

    def mean(rate: Any) -> float:
        return statistics.fmean(results[(case, rate, seed)]["accuracy"] for seed in range(seeds))

    scores = [mean(rate) for rate in GRID]
    best = max(range(len(GRID)), key=scores.__getitem__)
    rate = statistics.fmean(results[(case, "auto", seed)]["rate"] for seed in range(seeds))
    found: dict[str, Any] = {
        "case": case,
        "scores": scores,
        "best": scores[best],
        "at": GRID[best],
        "auto": mean("auto"),
        "rate": rate,
    }
    between = numpy.interp(math.log(rate * case.steps), [math.log(r) for r in GRID], scores)
    return {
        **found,
        "regret": max(0.0, scores[best] - found["auto"]),
        "undivided": max(0.0, scores[best] - (found["auto"] if case.steps == 1 else float(between))),
    }


def _panel(entry: dict[str, Any]) -> Any:
    name = "test accuracy: " + str(entry["case"]).replace(", ", "\n", 1)
    return panel(
        "inner rate",
        name,
        [line("fixed", GRID, entry["scores"])],
        [mark("auto", entry["rate"], entry["auto"])],
        log_x=True,
    )


def _plain(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "case": str(entry["case"])}


def source(name: str) -> str:
    """Where a dataset is: the catalogue knows it, but for Quick Draw, which is a file of one's own.

    Raises:
        UserError: there is no Quick Draw.
    """
    if name != "quickdraw":
        return name
    test_data = os.environ.get("INNERLOOP_TEST_DATA")
    given = os.environ.get("INNERLOOP_QUICKDRAW") or (f"{test_data}/quickdraw_28.npz" if test_data else None)
    if given is None or not Path(given).is_file():
        raise UserError(
            "rate-regret needs Quick Draw drawings: set INNERLOOP_QUICKDRAW to an .npz of images "
            "(classes, drawings, 28, 28) and names."
        )
    return given
