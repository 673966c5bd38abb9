"""Is the first choice of a short race the best method of a long one, and how much is lost if not?"""

import os
import statistics
from collections.abc import Sequence

from innerloop.choose.methods import PICTURES
from innerloop_studies.papers.further import races
from innerloop_studies.papers.further.rates import PHOTOGRAPHS, source
from innerloop_studies.reproduce.rows import Reproduction, Row, Say

TITLE = "innerloop advise: the first choice of a short race against long training (ours)"
VERSION = 1
NAME = "advice-race"
CLOSE = 0.01  # accuracy that the first choice may be below the best
PART = "INNERLOOP_ADVICE_CASES"  # environment: look at only the first problems, this many

SIZES = {"smoke": (1.0, 8, 1), "cpu": (100.0, 400, 1), "paper": (3600.0, 1000, 3)}
"""Seconds of every method, validation tasks, seeds; a tenth of six times as long is ``budget=60s`` at cpu."""
METHODS = {"smoke": ("protonet", "maml"), "cpu": tuple(PICTURES), "paper": tuple(PICTURES)}


def cases(scale: str) -> list[races.RaceProblem]:
    """Ten problems; at smoke scale one, on the embedded glyphs."""
    if scale == "smoke":
        return [races.RaceProblem("glyphs", 3, 1)]
    sets = ("quickdraw", "cifar-fs", "fc100", PHOTOGRAPHS, "omniglot")
    return [races.RaceProblem(data, 5, shots) for data in sets for shots in (1, 5)]


def regret(score: float, best: float) -> float:
    """How far accuracies are apart after long training."""
    return best - score


def run(scale: str, say: Say) -> Reproduction:
    """Long runs two at a time, then the short races; every part is kept."""
    every = cases(scale)
    for case in every:
        source(case.data)  # missing data are told at once
    chosen = every[: int(os.environ.get(PART, "0")) or None]
    network = "strided Conv4-64; rates chosen on CIFAR-FS 5-way 5-shot"
    race = races.Race(NAME, VERSION, chosen, METHODS[scale], SIZES[scale], network, 0.0, regret)
    problems = races.race_study(race, scale, say)
    title = "points below the best method after long training"
    figure = races.race_figure(problems, title, lambda score, best: 100 * (score - best))
    return races.reproduction(race, every, problems, _rows(problems, scale), figure)


def _rows(problems: Sequence[races.RaceOutcome], scale: str) -> list[Row]:
    regrets = [one.regret for one in problems]
    what = "the first choice is within a point of the best method of the long race"
    said = f"median {100 * statistics.median(regrets):.1f}, worst {100 * max(regrets):.1f} points below"
    return races.race_rows(problems, scale, CLOSE, what, said)
