"""Training runs behind ``maml-permutations`` and ``bridge-frozen``: one learner, one start of its head."""

from typing import Any, NamedTuple

from innerloop.core import Interval, NonFiniteError
from innerloop.evaluation.scores import by_label_order, evaluate
from innerloop.experiment import Parts
from innerloop.experiment.learner import build_learner
from innerloop.learners.orders import label_orders
from innerloop.training.state import TrainState
from innerloop_studies.papers.training import conv4_recipe, fitted, plan_for


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


class HeadRun(NamedTuple):
    """A trained learner on the test tasks: a score each, and how far the last layer moved in training."""

    scores: list[float]
    moved: float


class PermutedRun(NamedTuple):
    """Test tasks in many orders of their labels; ``equal_rows``: the last layer's mean row everywhere."""

    scores: list[list[float]]
    averaged: list[float]
    equal_rows: list[float]


def trained(setting: Setting, start: str, seed: int) -> tuple[Parts, TrainState]:
    """A Conv4-32 after training from one start of its last layer."""
    inner = {"method": setting.method, "lr": setting.lr, "steps": setting.inner_steps}
    sections: dict[str, dict[str, Any]] = {
        "model": {"filters": 32, "pooling": "stride", "norm": "transductive"},
        "inner": {**inner, "head_start": start},
        "outer": {"steps": setting.steps, "batch": 2, "lr": 2e-3, "clip": 10.0},
        "eval": {"episodes": setting.tests, "queries": TEST_QUERIES},
        "run": {"threads": 1, "dtype": setting.dtype},
    }
    pictures = {"name": setting.data, "standardise": setting.data != "glyphs"}
    shape = (WAYS, setting.shots, 5)
    recipe = conv4_recipe("head-starts", pictures, shape, seed, **sections)
    outcome = fitted(recipe)
    if outcome.state is None:
        raise NonFiniteError(f"training of {setting.method} went to infinity: lower its inner rate.")
    return outcome.parts, outcome.state


def judged(setting: Setting, start: str, seed: int) -> HeadRun:
    """Accuracies on the test tasks, one each, and the largest change of a weight of the last layer."""
    parts, state = trained(setting, start, seed)
    moved = max(float((state.params[n] - parts.params[n]).abs().max()) for n in parts.network.head_names)
    return HeadRun(_scores(parts, state, start), moved)


def permuted(setting: Setting, start: str, seed: int, orders: int) -> PermutedRun:
    """Accuracies on test tasks in every order of their labels, averaged over orders, and of equal rows."""
    parts, state = trained(setting, start, seed)
    learner, every = parts.learner_after(setting.inner_steps), label_orders(WAYS, orders)
    judged_on = parts.data.test, parts.loss, every, setting.tests, plan_for(parts.recipe)
    by_order = by_label_order(learner, state.params, state.buffers, *judged_on)
    equal_rows = _scores(parts, state, "one-vector")
    return PermutedRun(by_order.scores.tolist(), by_order.averaged.tolist(), equal_rows)


def stated(setting: Setting, seeds: int) -> dict[str, Any]:
    """For protocols."""
    net = "strided Conv4-32, norm=transductive, tasks per meta-step: 2"
    sizes = {"ways": WAYS, "test queries per class": TEST_QUERIES, "seeds": seeds}
    return {**setting._asdict(), **sizes, "net": net}


def points(interval: Interval, sign: str = "") -> str:
    """In percentage points."""
    return f"{100 * interval.mean:{sign}.1f} ± {100 * interval.ci95:.1f}"


def _scores(parts: Parts, state: TrainState, start: str) -> list[float]:
    inner = parts.recipe.inner.model_copy(update={"head_start": start})
    learner = build_learner(inner, parts.network, inner.steps, WAYS)
    tests, plan = parts.recipe.eval.episodes, plan_for(parts.recipe)
    return evaluate(learner, state.params, state.buffers, parts.data.test, parts.loss, tests, plan).scores
