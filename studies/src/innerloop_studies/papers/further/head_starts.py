"""Training runs behind ``maml-permutations`` and ``bridge-frozen``: one learner, one start of its last layer.

They stand apart from the rows that are made of them, so that finished runs outlive a change of words there
(:func:`innerloop_studies.reproduce.parts.remembered`).
"""

from typing import NamedTuple

from innerloop.core.errors import NonFiniteError
from innerloop.core.types import Params
from innerloop.evaluation.scores import by_label_order, evaluate
from innerloop.experiment.learner import build_learner
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.learners.orders import label_orders
from innerloop.training.state import TrainState
from innerloop_studies.papers.training import Fitted, fitted, plan_for


class Setting(NamedTuple):
    """What is trained, and how much of it is judged."""

    method: str
    shots: int
    inner_steps: int
    lr: float
    data: str
    steps: int
    tests: int
    dtype: str = "float32"


WAYS, TEST_QUERIES = 5, 15


def trained(setting: Setting, start: str, seed: int) -> Fitted:
    """A Conv4-32 after training from one start of its last layer."""
    recipe = make_recipe(
        {
            "name": "head-starts",
            "data": {"name": setting.data, "standardise": setting.data != "glyphs"},
            "tasks": {"family": "few-shot", "ways": WAYS, "shots": setting.shots, "queries": 5},
            "model": {"kind": "conv4", "filters": 32, "pooling": "stride", "norm": "transductive"},
            "inner": {
                "method": setting.method,
                "lr": setting.lr,
                "steps": setting.inner_steps,
                "loss": "cross-entropy",
                "head_start": start,
            },
            "outer": {"steps": setting.steps, "batch": 2, "lr": 2e-3, "clip": 10.0},
            "eval": {"episodes": setting.tests, "queries": TEST_QUERIES},
            "run": {"seed": seed, "threads": 1, "dtype": setting.dtype},
        }
    )
    return fitted(recipe)


class Judged(NamedTuple):
    """A trained learner on the test tasks."""

    scores: list[float]
    moved: float


class Permuted(NamedTuple):
    """A trained learner on the test tasks, in many orders of their labels."""

    scores: list[list[float]]
    averaged: list[float]
    equal_rows: list[float]


def judged(setting: Setting, start: str, seed: int) -> Judged:
    """Accuracies on the test tasks, one each, and how far the last layer moved in training."""
    outcome = trained(setting, start, seed)
    state = _state(outcome)
    return Judged(_scores(outcome.parts, state, start), _moved(outcome.parts, state.params))


def permuted(setting: Setting, start: str, seed: int, orders: int) -> Permuted:
    """Accuracies on the test tasks in every order of their labels, averaged over orders, and of equal rows.

    ``equal rows`` are those of the trained last layer in the place of each: another start at test only.
    """
    outcome = trained(setting, start, seed)
    parts, state = outcome.parts, _state(outcome)
    by_order = by_label_order(
        parts.learner_after(setting.inner_steps),
        state.params,
        state.buffers,
        parts.data.test,
        parts.loss,
        label_orders(WAYS, orders),
        setting.tests,
        plan_for(outcome.recipe),
    )
    equal_rows = _scores(parts, state, "one-vector")
    return Permuted(by_order.scores.tolist(), by_order.averaged.tolist(), equal_rows)


def _scores(parts: Parts, state: TrainState, start: str) -> list[float]:
    recipe = parts.recipe
    inner = recipe.inner.model_copy(update={"head_start": start})
    learner = build_learner(inner, parts.network, inner.steps, WAYS)
    tests, plan = recipe.eval.episodes, plan_for(recipe)
    return evaluate(learner, state.params, state.buffers, parts.data.test, parts.loss, tests, plan).scores


def _state(outcome: Fitted) -> TrainState:
    if outcome.state is None:
        method = outcome.recipe.inner.method
        raise NonFiniteError(f"training of {method} went to infinity: lower its inner rate.")
    return outcome.state


def _moved(parts: Parts, params: Params) -> float:
    """The largest change of a weight of the last layer."""
    return max(float((params[n] - parts.params[n]).abs().max()) for n in parts.network.head_names)
