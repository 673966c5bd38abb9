"""Runs of ANIL on pictures at one rate, and what a rate loses against the best of a grid."""

import functools
import hashlib
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
from matplotlib.figure import Figure

from innerloop.choose.rates import advice_for
from innerloop.core.errors import UserError
from innerloop.data.hashing import file_hash
from innerloop.experiment import Recipe
from innerloop.experiment.inner_rate import provisional
from innerloop.experiment.parts import build
from innerloop.experiment.weights import for_test
from innerloop.report.plots.panels import line, mark, panel, panels_figure
from innerloop.theory.rate import step_divisor, step_rates
from innerloop.theory.rate.tangent_features import head_stacks
from innerloop_studies.papers.training import combined, conv4_recipe, fitted, judged, own_file
from innerloop_studies.reproduce.parts import compute_parts
from innerloop_studies.reproduce.rows import Say

QUERIES = 5
PHOTOGRAPHS, SIDE = "tiny-imagenet", 32
"""Photographs are brought to this size: a quarter of the pixels, and of the time."""


class RateProblem(NamedTuple):
    """One problem."""

    data: str
    ways: int
    norm: str
    steps: int
    shots: int = 1

    @property
    def normalised(self) -> bool:
        """Whether the network has normalisation layers."""
        return self.norm != "none"

    def __str__(self) -> str:
        layer = "batch norm" if self.normalised else "no normalisation"
        many = "s" if self.steps > 1 else ""
        return f"{self.data}, {self.ways}-way {self.shots}-shot, {layer}, {self.steps} step{many}"


class Reached(NamedTuple):
    """What training at a rate has reached."""

    accuracy: float
    ci95: float
    rate: float
    diverged: bool


def trained(case: RateProblem, rate: Any, seed: int, size: Sequence[int]) -> Reached:
    """Accuracy on test tasks after training at a rate, or at ``auto``."""
    outcome = fitted(recipe_of(case, rate, seed, size))
    score = judged(outcome)
    diverged = not math.isfinite(score.mean)
    accuracy = 1 / case.ways if diverged else score.mean
    return Reached(accuracy, score.ci95, float(outcome.parts.recipe.inner.lr), diverged)


def recipe_of(case: RateProblem, rate: Any, seed: int, size: Sequence[int]) -> Recipe:
    """ANIL with a strided Conv4-32 on a problem."""
    steps, batch, tests = size
    pictures = {"name": source(case.data)} | ({"size": SIDE} if case.data == PHOTOGRAPHS else {})
    sections: dict[str, dict[str, Any]] = {
        "model": {"filters": 32, "pooling": "stride", "norm": case.norm},
        "inner": {"method": "anil", "lr": rate, "steps": case.steps},
        "outer": {"steps": steps, "batch": batch, "lr": 3e-3, "clip": 10.0},
        "eval": {"episodes": tests},
        "run": {"threads": 1},
    }
    return conv4_recipe("rate-regret", pictures, (case.ways, case.shots, QUERIES), seed, **sections)


def estimated(case: RateProblem, seed: int) -> dict[str, float]:
    """The two forms behind ``auto``'s point at the first weights, for one step and (``…, all``) for all."""
    parts = build(provisional(recipe_of(case, "auto", seed, (1, 1, 1))))
    advice = advice_for(parts)
    forms = {name: value * step_divisor(case.steps) for name, value in advice.forms.items()}
    batch = parts.data.train.episodes(range(advice.tasks))
    stacks = head_stacks(parts.network, *for_test(parts.params, parts.buffers), batch)
    every = step_rates(*stacks, classes=case.ways, steps=case.steps)
    return {**forms, "gradient, all": every.gradient, "trace, all": every.trace}


def source(name: str) -> str:
    """Where a dataset is: the catalogue knows it, but for Quick Draw and photographs, which are one's own."""
    if name == PHOTOGRAPHS:
        folder = os.environ.get("INNERLOOP_TINY_IMAGENET")
        if folder is None or not Path(folder).is_dir():
            raise UserError(
                "this needs photographs: set INNERLOOP_TINY_IMAGENET to a folder of pictures of "
                "Tiny-ImageNet, one folder per class."
            )
        return folder
    if name != "quickdraw":
        return name
    missing, holds = "rate-regret needs Quick Draw drawings", "images (classes, drawings, 28, 28) and names"
    return str(own_file("INNERLOOP_QUICKDRAW", "quickdraw_28.npz", missing, holds))


def content(name: str) -> str:
    """What tells two datasets of this name apart: nothing for the catalogue's, whose pictures are checked."""
    if name == PHOTOGRAPHS:
        return _folder_hash(source(name))
    return _file_hash(Path(source(name))) if name == "quickdraw" else ""


_file_hash = functools.cache(file_hash)


@functools.cache
def _folder_hash(folder: str) -> str:
    """Of names and sizes: what reads as other pictures is not taken for the same."""
    root = Path(folder)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    listing = "\n".join(f"{path.relative_to(root).as_posix()} {path.stat().st_size}" for path in files)
    return hashlib.sha256(listing.encode()).hexdigest()


GRID = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
MEDIAN, WORST = 0.01, 0.03  # the aim: regrets of this much in the median and at worst


def is_met(regrets: Sequence[float]) -> bool:
    """Whether that is so."""
    return statistics.median(regrets) <= MEDIAN and max(regrets) <= WORST


Results = Mapping[tuple[RateProblem, Any, int], Reached]
"""What was reached, by case, rate (a number or ``auto``) and seed."""


class RateEntry(NamedTuple):
    """A problem: accuracies at the rates of the grid and at ``auto``, means over seeds."""

    case: RateProblem
    scores: list[float]
    auto: float
    rate: float

    @property
    def best(self) -> float:
        """The highest of the grid, chosen on the same test tasks, which favours it."""
        return max(self.scores)

    @property
    def at(self) -> float:
        """The rate of the grid that is best."""
        return GRID[self.scores.index(self.best)]

    @property
    def regret(self) -> float:
        """What ``auto`` loses against the best rate of the grid."""
        return max(0.0, self.best - self.auto)

    @property
    def factor(self) -> float:
        """From ``auto``'s rate to the nearest of the grid within a point of the best; 1 if ``auto`` is."""
        if self.regret <= MEDIAN:
            return 1.0
        good = [r for r, score in zip(GRID, self.scores, strict=True) if score >= self.best - MEDIAN]
        return min(max(r / self.rate, self.rate / r) for r in good)

    @property
    def divided(self) -> float:
        """The regret, had the rate been divided by the steps and not by their root."""
        return self.between(self.rate / step_divisor(self.case.steps)) if self.case.steps > 1 else self.regret

    @property
    def undivided(self) -> float:
        """The regret, had the rate not been divided."""
        return self.between(self.rate * step_divisor(self.case.steps)) if self.case.steps > 1 else self.regret

    def between(self, rate: float) -> float:
        """The regret at a rate, read off between those of the grid."""
        known = numpy.interp(math.log(rate), [math.log(r) for r in GRID], self.scores)
        return max(0.0, self.best - float(known))

    def as_dict(self) -> dict[str, Any]:
        """For files."""
        figures = ("scores", "best", "at", "auto", "rate", "regret", "factor", "divided", "undivided")
        return {"case": str(self.case), **{name: getattr(self, name) for name in figures}}


def summary(case: RateProblem, results: Results, seeds: int) -> RateEntry:
    """Means over seeds."""

    def mean(rate: Any) -> float:
        return statistics.fmean(results[(case, rate, seed)].accuracy for seed in range(seeds))

    rate = statistics.fmean(results[(case, "auto", seed)].rate for seed in range(seeds))
    return RateEntry(case, [mean(rate) for rate in GRID], mean("auto"), rate)


def seen(job: Mapping[str, Any]) -> dict[str, str]:
    """What a part depends on besides its settings; missing data are told at once by this."""
    return {"content": content(job["case"].data)}


def train_all(name: str, version: int, jobs: Sequence[Mapping[str, Any]], say: Say) -> Results:
    """What trainings come to, by problem, rate and seed; finished ones are kept."""
    results = {}
    for job, value in zip(jobs, compute_parts(name, version, trained, jobs, seen=seen), strict=True):
        case, rate, seed = job["case"], job["rate"], job["seed"]
        results[case, rate, seed] = one = Reached(*value)
        say(f"{case}, seed {seed}, {rate}: {one.accuracy:.3f} (rate {one.rate:.3g})")
    return results


def jobs_of(cases: Sequence[RateProblem], size: Sequence[int]) -> list[dict[str, Any]]:
    """Every problem and seed at ``auto`` and at every rate of the grid; ``size``: of ``SIZES``."""
    *given, seeds = size
    return combined(case=cases, seed=range(seeds), rate=("auto", *GRID), size=[tuple(given)])


def stated(size: Sequence[int]) -> dict[str, Any]:
    """For protocols."""
    sizes = dict(zip(("meta-steps", "batch", "test tasks", "seeds"), size, strict=True))
    return {**sizes, "grid": list(GRID), "net": "strided Conv4-32"}


def table_figure(table: Sequence[RateEntry]) -> Figure:
    """Accuracy against the rate, a panel for each problem."""
    panels = []
    for entry in table:
        name = "test accuracy: " + str(entry.case).replace(", ", "\n", 1)
        marks = [mark("auto", entry.rate, entry.auto)]
        panels.append(panel("inner rate", name, [line("fixed", GRID, entry.scores)], marks, log_x=True))
    return panels_figure(panels, columns=min(4, len(panels)), width=3.4, height=2.8)


def answers(table: Sequence[RateEntry]) -> list[tuple[float, int]]:
    """All accuracies of the smallest scale, and of how many answers each is a share."""
    _, _, tests, seeds = SIZES["smoke"]
    asked = QUERIES * tests * seeds
    return [(share, one.case.ways * asked) for one in table for share in (*one.scores, one.auto)]


SIZES = {"smoke": (4, 2, 10, 1), "cpu": (150, 2, 200, 2), "paper": (2000, 4, 1000, 2)}
"""Meta-steps, tasks per step, test tasks, seeds."""
