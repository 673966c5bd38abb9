"""The short race of `innerloop advise` on regression tasks: quadratic, linear and sinusoidal families."""

import math
import statistics
from collections.abc import Sequence

from innerloop.choose.methods import NUMBERS
from innerloop_studies.papers.further import races
from innerloop_studies.reproduce.rows import Reproduction, Row, Say

TITLE = "innerloop advise on regression: the first choice of a short race (ours)"
VERSION = 1
NAME = "advice-numbers"
CLOSE = 0.1  # how far above the best error, relative to it, that of the first choice may be

SIZES = {"smoke": (1.0, 8, 1), "cpu": (30.0, 400, 1), "paper": (3600.0, 1000, 1)}
"""Seconds of training of every method, validation tasks, seeds."""
METHODS = {"smoke": ("maml", "pooled"), "cpu": tuple(NUMBERS), "paper": tuple(NUMBERS)}
FAMILIES = ("bridge-quadratic", "bernacchia-quadratic", "mixed-linear", "linear", "sine")


def cases(scale: str) -> list[races.RaceProblem]:
    """Five families with 5 and 20 shots; at smoke scale one."""
    if scale == "smoke":
        return [races.RaceProblem("sine", 0, 5)]
    return [races.RaceProblem(family, 0, shots) for family in FAMILIES for shots in (5, 20)]


def regret(score: float, best: float) -> float:
    """By which share an error is above the best; what diverged in long training has an infinite error."""
    return score / best - 1


def run(scale: str, say: Say) -> Reproduction:
    """Long runs two at a time, then the short races; every part is kept."""
    every = cases(scale)
    network = "two hidden layers of 40 or 64; rates of the recipes sine-NAME"
    race = races.Race(NAME, VERSION, every, METHODS[scale], SIZES[scale], network, math.inf, regret)
    problems = races.race_study(race, scale, say)
    title = "mean squared error after long training, times the best"
    figure = races.race_figure(problems, title, lambda score, best: score / best, limits=(0.8, 40.0))
    return races.reproduction(race, every, problems, _rows(problems, scale), figure)


def _rows(problems: Sequence[races.RaceOutcome], scale: str) -> list[Row]:
    regrets = [one.regret for one in problems]
    what = "the error of the first choice is at most a tenth above the best of the long race"
    said = f"median {statistics.median(regrets):.0%}, worst {max(regrets):.0%} above"
    return races.race_rows(problems, scale, CLOSE, what, said)
