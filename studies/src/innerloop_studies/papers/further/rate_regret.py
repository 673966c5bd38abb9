"""How much ``inner.lr=auto`` loses against the best of a grid of fixed rates, on problems it was not made on.

Quick Draw and CIFAR-FS with ANIL and a strided Conv4-32: with and without normalisation, 1 and 5 inner
steps, 5-way 1-shot, and 20-way on Quick Draw; two seeds. Every training run is kept under
``runs/reproduce-parts``: interrupted, the command goes on where it was.
"""

import os
import statistics
from typing import Any

from innerloop.choose.rate_advice import NORMALISED, UNNORMALISED
from innerloop.report.plots.panels import panels_figure
from innerloop_studies.papers.further import rates
from innerloop_studies.papers.further.rates import Case, Entry, Reached, Size
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, counts_row, row, same_row

TITLE = "inner.lr=auto against the best of eight fixed rates on Quick Draw and CIFAR-FS (ours)"
VERSION = 1
NAME = "rate-regret"
PART = "INNERLOOP_REGRET_CASES"
"""Environment: look at only the first cases, this many."""

SIZES = {
    # meta-steps, tasks per step, test tasks, seeds
    "smoke": (4, 2, 10, 1),
    "cpu": (150, 2, 200, 2),
    "paper": (2000, 4, 1000, 2),
}


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
        rates.source(case.data)  # missing data are told at once
    chosen = chosen[: int(os.environ.get(PART, "0")) or None]
    jobs = rates.jobs_of(chosen, seeds, Size(steps, batch, tests))
    results: dict[tuple[Case, Any, int], Reached] = {}
    for job, outcome in zip(jobs, rates.reached(NAME, VERSION, jobs), strict=True):
        results[job[:3]] = outcome
        say(f"{job.case}, seed {job.seed}, {job.rate}: {outcome.accuracy:.3f} (rate {outcome.rate:.3g})")
    settled = [
        job._replace(rate=results[job.case, "auto", job.seed].rate) for job in jobs if job.rate == "auto"
    ]
    again = [one.accuracy for one in rates.reached(NAME, VERSION, settled)] if scale == "smoke" else []
    table = [rates.summary(case, results, seeds) for case in chosen]
    protocol = {
        "meta-steps": steps,
        "batch": batch,
        "test tasks": tests,
        "seeds": seeds,
        "grid": list(rates.GRID),
        "net": "strided Conv4-32",
        "cases run": f"{len(chosen)} of {len(cases(scale))}",
    }
    panels = [rates.panel_of(entry) for entry in table]
    figure = panels_figure(panels, columns=min(4, len(panels)), width=3.4, height=2.8)
    rows = _smoke_rows(table, again) if scale == "smoke" else _rows(table, scale)
    return Reproduction(rows, {NAME: figure}, {"table": [entry.as_dict() for entry in table]}, protocol)


def _smoke_rows(table: list[Entry], again: list[float]) -> list[Row]:
    """What must hold however little was trained: four meta-steps rank no rates."""
    _, _, tests, seeds = SIZES["smoke"]
    judged = [
        (accuracy, entry.case.ways * rates.QUERIES * tests * seeds)
        for entry in table
        for accuracy in (*entry.scores, entry.auto)
    ]
    pairs = list(zip((entry.auto for entry in table), again, strict=True))
    what = "inner.lr=auto and the number that it settled on give the same accuracy"
    return [counts_row(judged), same_row(what, pairs, "one seed: each accuracy is a single run's")]


def _rows(table: list[Entry], scale: str) -> list[Row]:
    rows = [
        row(
            str(entry.case),
            "best of the grid",
            f"auto {entry.auto:.3f} (rate {entry.rate:.3g}), best {entry.best:.3f} "
            f"at {entry.at:g}: regret {100 * entry.regret:.1f} points",
            entry.regret <= rates.WORST,
            reason="holds if within 3 points of the best fixed rate, which is chosen with hindsight",
        )
        for entry in table
    ]
    for what, key, expected in (
        ("median regret within 1 point, worst within 3", "regret", True),
        (f"{HAD} divided by the steps, not by their root {HINDSIGHT}", "divided", scale != "cpu"),
        (f"{HAD} not divided {HINDSIGHT}", "undivided", True),
    ):
        regrets = [getattr(entry, key) for entry in table]
        middle, worst = statistics.median(regrets), max(regrets)
        said = f"median {100 * middle:.1f}, worst {100 * worst:.1f} points"
        rows.append(
            row(what, "aim", said, middle <= rates.MEDIAN and worst <= rates.WORST, expected=expected)
        )
    return rows + _uncertainty(table)


def _uncertainty(table: list[Entry]) -> list[Row]:
    """Rows that hold the factors which ``auto`` states against these cases."""
    rows = []
    for words, normalised, stated in (("with", True, NORMALISED), ("without", False, UNNORMALISED)):
        chosen = [entry for entry in table if entry.case.normalised is normalised]
        if not chosen:
            continue
        needed = sorted(entry.factor for entry in chosen)
        best = sorted(max(entry.at / entry.rate, entry.rate / entry.at) for entry in chosen)
        rows.append(
            row(
                f"{words} normalisation, some rate within the stated factor is within 1 point of the best",
                f"stated: {stated:g}",
                f"needed: {', '.join(f'{value:.1f}' for value in needed)}; to the best rate itself: median "
                f"{statistics.median(best):.1f}, largest {best[-1]:.1f}",
                needed[-1] <= stated,
                reason="the stated uncertainty follows from these cases",
            )
        )
    return rows


HAD, HINDSIGHT = "the same, had the rate been", "(between grid rates, in hindsight)"
