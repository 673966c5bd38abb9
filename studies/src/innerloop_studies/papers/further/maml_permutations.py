"""Ye & Chao (2021): how much MAML's accuracy depends on the order of a task's labels, and what helps."""

import statistics
from typing import Any

from innerloop.core.statistics import Interval, mean_interval, paired_difference
from innerloop.report.plots.panels import line, panel, panels_figure
from innerloop_studies.papers.further import head_starts as starts
from innerloop_studies.reproduce.parts import compute_parts
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, counts_row, listed, row

TITLE = "Ye & Chao 2021: MAML's accuracy against the order of a task's labels"
VERSION = 1
NAME = "maml-permutations"
SETTINGS = {  # nobody has run ``paper`` here: what is expected of it is what its authors say
    "smoke": starts.Setting("maml", 1, 2, 0.1, "glyphs", 4, 6, "float64"),
    "cpu": starts.Setting("maml", 1, 2, 0.1, "cifar-fs", 600, 80),
    "paper": starts.Setting("maml", 1, 5, 0.05, "cifar-fs", 60_000, 2000),
}

ORDERS = {"smoke": (10, 10), "cpu": (24, 5), "paper": (120, 5)}
"""Of the labels: for learned rows, and for equal ones, where one would be enough."""

SEEDS = {"smoke": 1, "cpu": 3, "paper": 3}
HUGE = 0.05  # a mean distance of the best from the worst order that is called huge here: five points

Runs = dict[str, list[starts.PermutedRun]]  # by the start of the last layer, one for each seed

STARTS = ("learned", "one-vector")
AVERAGED = "MAML: averaging the predictions over the orders helps"
SHARED = "one vector for all classes, in training and test, performs better"
PUBLISHED = "better (mini-ImageNet 65.17 against 64.42, tiered 69.24 against 65.72)"


def run(scale: str, say: Say) -> Reproduction:
    """Trains from both starts, and judges the same test tasks in many orders of their labels."""
    setting, orders, seeds = SETTINGS[scale], ORDERS[scale], SEEDS[scale]
    runs: Runs = {start: [] for start in STARTS}
    starting = [{"start": start, "orders": count} for start, count in zip(STARTS, orders, strict=True)]
    jobs: list[Any] = [{"setting": setting, "seed": s, **one} for s in range(seeds) for one in starting]
    for job, value in zip(jobs, compute_parts(NAME, VERSION, starts.permuted, jobs), strict=True):
        one = starts.PermutedRun(*value)
        runs[job["start"]].append(one)
        say(f"{job['start']}, seed {job['seed']}: accuracy {statistics.fmean(flat([one])):.3f}")
    rows = _identities(runs, scale) + ([] if scale == "smoke" else _rows(runs))
    protocol = {**starts.stated(setting, seeds), "orders of the labels": orders}
    protocol["intervals"] = "95 % over test tasks and seeds together"
    keys = [name.replace("_", " ") for name in starts.PermutedRun._fields]
    kept = {start: [dict(zip(keys, one, strict=True)) for one in some] for start, some in runs.items()}
    # tasks in the order of their mean accuracy: mean, best and worst over the orders of their labels
    tasks = sorted((task for one in runs["learned"] for task in one.scores), key=statistics.fmean)
    places = list(range(1, len(tasks) + 1))
    curves: dict[str, Any] = {"best order": max, "mean": statistics.fmean, "worst order": min}
    lines = [line(name, places, [value(task) for task in tasks]) for name, value in curves.items()]
    figure = panels_figure([panel("test task", "accuracy of MAML", lines)], columns=1, width=5.8)
    return Reproduction(rows, {NAME: figure}, kept, protocol)


def flat(runs: list[starts.PermutedRun]) -> list[float]:
    """Per test task and seed, the mean over orders."""
    return [statistics.fmean(task) for each_run in runs for task in each_run.scores]


def spreads(runs: list[starts.PermutedRun]) -> list[float]:
    """Per test task and seed, the best order's accuracy less the worst's."""
    return [max(task) - min(task) for each_run in runs for task in each_run.scores]


def _identities(runs: Runs, scale: str) -> list[Row]:
    """What must hold however little was trained."""
    answers = starts.WAYS * starts.TEST_QUERIES
    shares = [(score, answers) for each_run in runs["learned"] for task in each_run.scores for score in task]
    changed = [value > 0 for value in spreads(runs["one-vector"])]
    what = "one vector for all classes: no order of the labels changes a task's accuracy"
    said = f"it changes in {sum(changed)} of {len(changed)} tasks"
    why = "exact up to rounding, which can turn a tie" if scale != "smoke" else "in float64"
    return [counts_row(shares), row(what, "permutation-invariant", said, not any(changed), reason=why)]


def _better(what: str, paper: str, gap: Interval, said: str) -> Row:
    why = "paired by task; holds if the interval is above zero"
    return row(what, paper, f"{starts.points(gap, '+')} points{said}", gap.mean > gap.ci95, reason=why)


def _rows(runs: Runs) -> list[Row]:
    learned, shared = runs["learned"], runs["one-vector"]
    plain, spread = flat(learned), mean_interval(spreads(learned))
    deviation = statistics.fmean(statistics.pstdev(task) for each_run in learned for task in each_run.scores)
    mean, better = mean_interval(plain), paired_difference(flat(shared), plain)
    others = ([score for one in learned for score in getattr(one, key)] for key in ("averaged", "equal_rows"))
    averaged, equal = (paired_difference(scores, plain) for scores in others)
    means = [[statistics.fmean(flat([one])) for one in some] for some in (shared, learned)]
    apart = [100 * (a - b) for a, b in zip(*means, strict=True)]
    what = "MAML: the orders of a task's labels lead to a huge variance of its accuracy"
    said = f"accuracy {starts.points(mean)} %; best order less worst {starts.points(spread)} points, "
    said += f"deviation over orders {100 * deviation:.1f} points (means over tasks)"
    why = f"holds if best and worst are {100 * HUGE:g} points apart or more"
    ours = "ours: the mean of MAML's trained rows in the place of each, at test only"
    found, not_worse = f"{starts.points(equal, '+')} points against one order", equal.mean > -equal.ci95
    return [
        row(what, "huge variance", said, spread.mean >= HUGE, reason=why),
        _better(AVERAGED, "helps", averaged, " against one order"),
        _better(SHARED, PUBLISHED, better, f"; by seed {listed(apart, '+.1f')}"),
        row(ours, "–", found, not_worse, reason="holds if it is not clearly worse"),
    ]
