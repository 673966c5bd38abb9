"""The short race of ``innerloop advise`` on regression tasks: quadratic, linear and sinusoidal families.

As ``advice-race`` on pictures; a first choice is close if its error is at most a tenth above that of the best
method after long training. What needs no training stands beside it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from innerloop.choose.methods import NUMBERS
from innerloop_studies.papers.further.races import (
    SHARE,
    Case,
    Judged,
    Long,
    LongJob,
    Raced,
    RaceJob,
    counted_row,
    judged_by,
    long_run,
    race_figure,
    race_rows,
    short_race,
)
from innerloop_studies.reproduce.parts import compute_parts
from innerloop_studies.reproduce.rows import Reproduction, Row, Say

TITLE = "innerloop advise on regression: the first choice of a short race (ours)"
VERSION = 1
NAME = "advice-numbers"
CLOSE = 0.1
"""How far above the best error, relative to it, that of the first choice may be."""

SIZES = {"smoke": (1.0, 8), "cpu": (30.0, 400), "paper": (3600.0, 1000)}
"""Seconds of training of every method, and validation tasks."""
METHODS = {"smoke": ("maml", "pooled"), "cpu": tuple(NUMBERS), "paper": tuple(NUMBERS)}
FAMILIES = ("bridge-quadratic", "bernacchia-quadratic", "mixed-linear", "linear", "sine")


def cases(scale: str) -> list[Case]:
    """Five families with 5 and 20 shots; at smoke scale one."""
    if scale == "smoke":
        return [Case("sine", 0, 5)]
    return [Case(family, 0, shots) for family in FAMILIES for shots in (5, 20)]


def run(scale: str, say: Say) -> Reproduction:
    """Long runs two at a time, then the short races; every part is kept."""
    seconds, episodes = SIZES[scale]
    jobs = [LongJob(case, method, 0, seconds, episodes) for case in cases(scale) for method in METHODS[scale]]
    long: dict[Case, dict[str, Long]] = {}
    for (case, method, *_), value in zip(jobs, compute_parts(NAME, VERSION, long_run, jobs), strict=True):
        outcome = long.setdefault(case, {})[method] = Long(*value)
        say(f"{case}, {method}: mse {_text(outcome.score)} after {outcome.steps} steps")
    budget = max(SHARE * seconds * len(METHODS[scale]), 60.0 if scale == "smoke" else 0.0)
    problems = []
    races = [RaceJob(case, METHODS[scale], 0, budget) for case in long]
    for (case, *_), value in zip(races, compute_parts(NAME, VERSION, short_race, races), strict=True):
        problems.append(judged(case, long[case], Raced(*value)))
        one = problems[-1]
        say(f"{case}: the race chose {one.chosen}, {one.regret:.0%} above {one.best}")
    protocol = {
        "problems": [str(case) for case in cases(scale)],
        "methods": list(METHODS[scale]),
        "long": f"{seconds:g} s of one core each; {episodes} validation tasks that the race has not seen",
        "short": f"{SHARE:g} of that time for all methods together, one process",
        "network": "two hidden layers of 40 or 64; rates of the recipes sine-NAME",
        "seeds": 1,
    }
    kept = {"problems": [one._asdict() for one in problems]}
    return Reproduction(_rows(problems, scale), {NAME: _figure(problems)}, kept, protocol)


def judged(case: Case, long: Mapping[str, Long], raced: Raced) -> Judged:
    """A problem: what the race chose, what was best, and by which share its error is above the best.

    What diverged in long training has an infinite error.

    >>> long = {"a": Long(0.6, 0.01, 9, 60.0), "b": Long(0.5, 0.01, 9, 60.0)}
    >>> one = judged(Case("sine", 0, 5), long, Raced(["a", "b"], True, {}, [], 12.0))
    >>> one.chosen, one.best, round(one.regret, 3), one.share
    ('a', 'b', 0.2, 0.1)
    """
    return judged_by(case, 0, long, raced, worst=math.inf, regret=lambda score, best: score / best - 1)


def _rows(problems: Sequence[Judged], scale: str) -> list[Row]:
    if scale == "smoke":
        return [counted_row(problems)]
    regrets = [one.regret for one in problems]
    what = "the error of the first choice is at most a tenth above the best of the long race"
    said = f"median {statistics.median(regrets):.0%}, worst {max(regrets):.0%} above"
    return race_rows(problems, CLOSE, what, said, FAILS)


FAILS = ("decided",)
"""What does not hold at `cpu`: one of three leads that were more than chance did not last."""


def _figure(problems: Sequence[Judged]) -> Any:
    title = "mean squared error after long training, times the best"
    return race_figure(problems, title, lambda score, best: score / best, limits=(0.8, 40.0))


def _text(value: float | None) -> str:
    return "diverged" if value is None else f"{value:.4g}"
