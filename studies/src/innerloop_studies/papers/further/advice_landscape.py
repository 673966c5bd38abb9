"""Does the gain that `innerloop advise` predicts hold after training, in random linear environments?"""

import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from innerloop.choose.estimates import closed_forms
from innerloop.choose.problem import pose_advice
from innerloop.choose.request import read_advise
from innerloop.choose.validation import agreement
from innerloop.experiment.recipe.library import load_recipe
from innerloop.report.plots.panels import line, panel, panels_figure, points
from innerloop.theory.landscape.geography import Geography, geography
from innerloop_studies.papers.training import fitted, judged
from innerloop_studies.reproduce.parts import compute_parts
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row

TITLE = "innerloop advise: is the predicted gain that of trained linear models? (ours)"
VERSION = 1
DIM = 10


class Gains(NamedTuple):
    """NAL's excess risk over MAML's in one environment, three times."""

    predicted: float
    low: float
    high: float
    exact: float
    measured: float


def environment(number: int) -> tuple[dict[str, Any], int]:
    """One of the environments, a function of its number: settings of the family ``linear``, and the shots."""
    draw = np.random.default_rng(number)

    def between(low: float, high: float) -> float:
        return float(np.exp(draw.uniform(np.log(low), np.log(high))))

    settings = {"dim": DIM, "rho_hard": between(0.03, 0.8), "rho_easy": 1.0}
    settings |= {"R": float(draw.uniform(0.0, 3.0)), "r_hard": between(0.05, 1.0)}
    settings |= {"r_easy": between(0.05, 1.0), "hard_share": float(draw.uniform(0.2, 0.8))}
    return settings, int(draw.choice([20, 50, 200]))


def gains_of(number: int, steps: int, episodes: int) -> Gains:
    """The gain of one environment: predicted, exact and measured."""
    settings, shots = environment(number)
    tasks = [f"tasks.settings.{name}={value!r}" for name, value in settings.items()]
    tasks += [f"tasks.shots={shots}", "tasks.queries=20", "tasks.noise=0.0", f"seed={number}"]
    closed = closed_forms(pose_advice(read_advise("linear-maml", [*tasks, "methods=[yours]"])))
    exact = geography(Geography(**settings), lr=closed.inner_lr, shots=shots).gain
    length = [f"outer.steps={steps}", "outer.batch=64", "outer.lr=0.5", f"eval.episodes={episodes}"]
    given = [*tasks, *length, f"inner.lr={closed.inner_lr!r}"]
    nal, maml = (judged(fitted(load_recipe(f"linear-{name}", given))).mean for name in ("nal", "maml"))
    return Gains(*closed.gain, float(exact), nal / maml)


NAME = "advice-landscape"
SIZES = {"smoke": (2, 40, 40), "cpu": (30, 3000, 10_000), "paper": (200, 10_000, 50_000)}
"""Environments, outer steps, test tasks."""
WORTH = 1.1  # a gain that is worth mentioning
PROMISED, INSIDE = 0.9, 0.8
"""Aims: rank correlation, and the share of environments whose measured gain lies in its interval."""


def run(scale: str, say: Say) -> Reproduction:
    """Every environment is kept; two at a time."""
    count, steps, episodes = SIZES[scale]
    jobs = [{"number": number, "steps": steps, "episodes": episodes} for number in range(count)]
    some = [Gains(*value) for value in compute_parts(NAME, VERSION, gains_of, jobs)]
    for number, one in enumerate(some):
        say(f"environment {number}: predicted {one.predicted:.3f}, measured {one.measured:.3f}")
    protocol = {
        "environments": f"{count} random ones of the family linear, {DIM} inputs, 20, 50 or 200 shots",
        "predicted": "as by innerloop advise, from samples of 64 training tasks",
        "measured": f"linear-nal and linear-maml, {steps} steps of 64 tasks, one seed; {episodes} test tasks",
        "inner rate": "1/λ_max of the features, for both",
    }
    rows = smoke_rows(some) if scale == "smoke" else rows_of(some)
    kept = {"gains": [one._asdict() for one in some]}
    return Reproduction(rows, {NAME: _figure(some)}, kept, protocol)


def smoke_rows(gains: Sequence[Gains]) -> list[Row]:
    """What a few short trainings can tell: that estimates from samples are near the closed forms."""
    off = max(abs(math.log(one.predicted / one.exact)) for one in gains)
    what = "the gain from samples is within a factor of 1.5 of that from the environment's own moments"
    return [row(what, "at most 1.5", f"{math.exp(off):.2f} at most", off <= math.log(1.5))]


def rows_of(gains: Sequence[Gains]) -> list[Row]:
    """Whether the order, the size and the promise of a gain hold after training."""
    measured = [one.measured for one in gains]
    ranks = agreement([one.predicted for one in gains], measured).spearman
    off = [abs(one.predicted / one.measured - 1) for one in gains]
    inside, count = sum(one.low <= one.measured <= one.high for one in gains), len(gains)
    promised = [one.measured > WORTH for one in gains if one.low > WORTH]
    silent = [one.measured <= WORTH for one in gains if one.high < WORTH]
    what = "environments where MAML is predicted to gain more gain more after training"
    aim = f"rank correlation of {PROMISED} or more (our aim)"
    said = f"{ranks.value:.2f} [{ranks.low:.2f}, {ranks.high:.2f}] over {count} environments"
    rows = [row(what, aim, said, ranks.value >= PROMISED)]
    what = "the measured gain lies in the predicted interval, which is over tasks"
    said = f"{inside} of {count}; off by {statistics.median(off):.0%} in the median, {max(off):.0%} at most"
    rows.append(row(what, f"{INSIDE:.0%} (our aim)", said, inside >= INSIDE * count))
    for what, right in (
        ("a gain whose interval lies above 1.1 is above 1.1 after training", promised),
        ("where the interval lies below 1.1, no more than that is gained", silent),
    ):
        rows.append(row(what, "all (our aim)", f"{sum(right)} of {len(right)}", all(right)))
    return rows


def _figure(gains: Sequence[Gains]) -> Any:
    ends = [min(one.measured for one in gains), max(one.measured for one in gains)]
    seen = points([one.predicted for one in gains], [one.measured for one in gains])
    lines = [line("equal", ends, ends), line("environments", [], [], points=seen)]
    return panels_figure([panel("predicted gain", "gain after training", lines)], width=4.6, height=3.6)
