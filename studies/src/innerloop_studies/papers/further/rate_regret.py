"""How much `inner.lr=auto` loses against the best of a grid of fixed rates, on Quick Draw and CIFAR-FS."""

import os
import statistics

from innerloop.choose.rate_advice import NORMALISED, UNNORMALISED
from innerloop_studies.papers.further import rates
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, counts_row, listed, row, same_row

TITLE = "inner.lr=auto against the best of eight fixed rates on Quick Draw and CIFAR-FS (ours)"
VERSION = 1
NAME = "rate-regret"
PART = "INNERLOOP_REGRET_CASES"  # environment: look at only the first cases, this many


def cases(scale: str) -> list[rates.RateProblem]:
    """All twelve; at smoke scale two on the embedded glyphs."""
    if scale == "smoke":
        return [rates.RateProblem("glyphs", 5, norm, 1) for norm in ("transductive", "none")]
    kinds = (("quickdraw", 5), ("cifar-fs", 5), ("quickdraw", 20))
    norms = ("transductive", "none")
    return [rates.RateProblem(*kind, norm, steps) for steps in (1, 5) for norm in norms for kind in kinds]


def run(scale: str, say: Say) -> Reproduction:
    """Trains at every rate of the grid and at ``auto``; two runs at a time, one thread each."""
    every, size = cases(scale), rates.SIZES[scale]
    for case in every:
        rates.source(case.data)  # missing data are told at once
    chosen = every[: int(os.environ.get(PART, "0")) or None]
    jobs = rates.jobs_of(chosen, size)
    results = rates.train_all(NAME, VERSION, jobs, say)
    table = [rates.summary(case, results, size[-1]) for case in chosen]
    if scale == "smoke":
        at_auto = [job for job in jobs if job["rate"] == "auto"]
        settled = [{**job, "rate": results[job["case"], "auto", job["seed"]].rate} for job in at_auto]
        again = rates.train_all(NAME, VERSION, settled, say).values()
        rows = _smoke_rows(table, [one.accuracy for one in again])
    else:
        rows = _rows(table, scale)
    protocol = {**rates.stated(size), "cases run": f"{len(chosen)} of {len(every)}"}
    data = {"table": [entry.as_dict() for entry in table]}
    return Reproduction(rows, {NAME: rates.table_figure(table)}, data, protocol)


def _smoke_rows(table: list[rates.RateEntry], again: list[float]) -> list[Row]:
    """What must hold however little was trained: four meta-steps rank no rates."""
    pairs = list(zip((entry.auto for entry in table), again, strict=True))
    what = "inner.lr=auto and the number that it settled on give the same accuracy"
    same = same_row(what, pairs, "one seed: each accuracy is a single run's")
    return [counts_row(rates.answers(table)), same]


def _rows(table: list[rates.RateEntry], scale: str) -> list[Row]:
    rows, why = [], "holds if within 3 points of the best fixed rate, which is chosen with hindsight"
    for one in table:
        said = f"auto {one.auto:.3f} (rate {one.rate:.3g}), best {one.best:.3f} at {one.at:g}"
        said += f": regret {100 * one.regret:.1f} points"
        rows.append(row(str(one.case), "best of the grid", said, one.regret <= rates.WORST, reason=why))
    for what, key, expected in (
        ("median regret within 1 point, worst within 3", "regret", True),
        (f"{HAD} divided by the steps, not by their root {HINDSIGHT}", "divided", scale != "cpu"),
        (f"{HAD} not divided {HINDSIGHT}", "undivided", True),
    ):
        regrets = [getattr(entry, key) for entry in table]
        middle, worst = statistics.median(regrets), max(regrets)
        said = f"median {100 * middle:.1f}, worst {100 * worst:.1f} points"
        rows.append(row(what, "aim", said, rates.is_met(regrets), expected=expected))
    return rows + _uncertainty(table)


def _uncertainty(table: list[rates.RateEntry]) -> list[Row]:
    """Rows that hold the factors which ``auto`` states against these cases."""
    rows = []
    for words, normalised, stated in (("with", True, NORMALISED), ("without", False, UNNORMALISED)):
        if not (chosen := [entry for entry in table if entry.case.normalised is normalised]):
            continue
        needed = sorted(entry.factor for entry in chosen)
        best = sorted(max(entry.at / entry.rate, entry.rate / entry.at) for entry in chosen)
        what = f"{words} normalisation, some rate within the stated factor is within 1 point of the best"
        itself = f"to the best rate itself: median {statistics.median(best):.1f}, largest {best[-1]:.1f}"
        said = f"needed: {listed(needed, '.1f')}; {itself}"
        why = "the stated uncertainty follows from these cases"
        rows.append(row(what, f"stated: {stated:g}", said, needed[-1] <= stated, reason=why))
    return rows


HAD, HINDSIGHT = "the same, had the rate been", "(between grid rates, in hindsight)"
