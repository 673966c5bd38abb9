"""The runs behind ``advice-landscape``: the gain that is predicted, and that of trained linear models."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from innerloop.choose.estimates import closed_forms
from innerloop.choose.problem import pose_advice
from innerloop.choose.request import read_advise
from innerloop.experiment.recipe.library import load_recipe
from innerloop.theory.landscape.geography import Geography, geography
from innerloop_studies.reproduce.short_runs import fitted, judged

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
        """Evenly on a logarithmic scale."""
        return float(np.exp(draw.uniform(np.log(low), np.log(high))))

    settings = {
        "dim": DIM,
        "rho_hard": between(0.03, 0.8),
        "rho_easy": 1.0,
        "R": float(draw.uniform(0.0, 3.0)),
        "r_hard": between(0.05, 1.0),
        "r_easy": between(0.05, 1.0),
        "hard_share": float(draw.uniform(0.2, 0.8)),
    }
    return settings, int(draw.choice([20, 50, 200]))


def gains_of(number: int, steps: int, episodes: int) -> Gains:
    """The gain of one environment: predicted, exact and measured."""
    settings, shots = environment(number)
    tasks = [f"tasks.settings.{name}={value!r}" for name, value in settings.items()]
    tasks += [f"tasks.shots={shots}", "tasks.queries=20", "tasks.noise=0.0", f"seed={number}"]
    closed = closed_forms(pose_advice(read_advise("linear-maml", [*tasks, "methods=[yours]"])))
    exact = geography(Geography(**settings), lr=closed.inner_lr, shots=shots).gain
    length = [f"outer.steps={steps}", "outer.batch=64", "outer.lr=0.5", f"eval.episodes={episodes}"]
    nal, maml = (
        judged(fitted(load_recipe(name, [*tasks, *length, f"inner.lr={closed.inner_lr!r}"]))).mean
        for name in ("linear-nal", "linear-maml")
    )
    return Gains(*closed.gain, float(exact), nal / maml)
