"""Short training runs inside studies."""

import math
import types
from typing import Any

import pytest

from innerloop.core.statistics import Interval
from innerloop.experiment.recipe.settings import make_recipe
from innerloop_studies.papers.further import rates
from innerloop_studies.papers.training import fitted, judged

QUICK = {
    "model": {"hidden": [8]},
    "outer": {"steps": 4, "batch": 2},
    "eval": {"episodes": 6, "validation_episodes": 3},
    "run": {"execution": "loop", "compile": "off", "threads": 1, "seed": 1},
}


def test_no_inner_steps_at_test_means_none() -> None:
    """A legal 0 was read as "as many as in training" by the short runs of reproductions."""
    fit_result = fitted(make_recipe({**QUICK, "inner": {"steps": 3, "test_steps": 0, "lr": 0.05}}))
    assert judged(fit_result) == judged(fit_result, steps=0)
    assert judged(fit_result) != judged(fit_result, steps=3)


def test_a_diverged_run_of_rate_regret_counts_as_a_guess(monkeypatch: Any) -> None:
    class Done:
        state = object()
        parts = types.SimpleNamespace(recipe=make_recipe({"inner": {"lr": 10.0}}))

    monkeypatch.setattr(rates, "fitted", lambda recipe: Done)
    monkeypatch.setattr(rates, "judged", lambda outcome: Interval(math.nan, math.nan, 10))
    outcome = rates.trained(rates.RateProblem("glyphs", 5, "none", 1), 10.0, 0, (4, 2, 10))
    assert outcome.accuracy == pytest.approx(0.2)
    assert outcome.diverged
