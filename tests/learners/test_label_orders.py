"""Orders of the labels: which there are, predictions averaged over them, and the settings that ask for it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import innerloop as il
from innerloop.classify.heads import pack_state, unpack_state
from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.types import TaskBatch
from innerloop.data.glyphs import glyphs
from innerloop.evaluation import evaluate
from innerloop.evaluation.scores import by_label_order
from innerloop.experiment.learner import build_learner
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.recipe.protocols import brief
from innerloop.experiment.recipe.rules import unread
from innerloop.experiment.recipe.schema import InnerSettings
from innerloop.learners import LEARNERS, anil, boil, maml
from innerloop.learners.orders import label_averaged, label_orders, relabelled
from innerloop.learners.table import depends_on_order
from innerloop.nets import conv4, mlp
from innerloop.testing.closeness import CHAINED, assert_close
from innerloop.testing.suites import labels
from innerloop.training import Plan
from oracles import maml_loop, one_vector, problems
from oracles.forward import mlp_forward

WAYS = 3
CROSS_ENTROPY = get_loss("cross-entropy")


class Tasks:
    """The tasks of one batch as a sampler."""

    def __init__(self, batch: TaskBatch) -> None:
        self.batch = batch

    def episodes(self, indices: Any) -> TaskBatch:
        return TaskBatch(*(field[list(indices)] for field in self.batch))


@pytest.mark.parametrize(("outputs", "count"), [(2, 2), (4, 24), (5, 7), (20, 45)])
def test_orders_are_distinct_and_always_the_same(outputs: int, count: int) -> None:
    orders = label_orders(outputs, count)
    assert len({tuple(order.tolist()) for order in orders}) == len(orders) == count
    assert all(sorted(order.tolist()) == list(range(outputs)) for order in orders)
    assert orders[0].tolist() == list(range(outputs))
    again = label_orders(outputs, min(count + 1, math.factorial(outputs)))
    assert all(torch.equal(a, b) for a, b in zip(orders, again, strict=False))
    for start in range(0, count - outputs + 1, outputs):  # in a round every class takes every place
        places = torch.stack(orders[start : start + outputs])
        assert all(sorted(column) == list(range(outputs)) for column in places.T.tolist())


@pytest.mark.parametrize("count", [0, 7])
def test_more_orders_than_there_are(count: int) -> None:
    with pytest.raises(UserError, match=f"label_orders={count}: 3 labels have 6 orders, so give 1 to 6"):
        label_orders(3, count)


def test_the_average_equals_the_loop_over_all_renumberings() -> None:
    network, task = mlp(4, [6], WAYS, activation="tanh"), problems.classification(ways=WAYS).task(0)
    params, _ = problems.drawn(network)
    learner = label_averaged(maml(network, CROSS_ENTROPY, 0.3, 2), label_orders(WAYS, 6))
    adapted = learner.adapt(params, {}, task.x_support, task.y_support)
    prediction = learner.predict(adapted, task.x_query)[0].exp()
    inner = maml_loop.Inner(0.3, 2)
    expected = one_vector.averaged_probabilities(
        mlp_forward(torch.tanh), CROSS_ENTROPY.value, params, inner, tuple(task)
    )
    assert_close(prediction, expected)
    assert_close(prediction.sum(-1), torch.ones(len(prediction), dtype=torch.float64))


@pytest.mark.parametrize("make", [maml, anil, boil])
@pytest.mark.parametrize("outputs", [WAYS, WAYS + 1])
def test_the_average_over_all_orders_depends_on_none(make: Any, outputs: int) -> None:
    network, task = mlp(4, [6], outputs, activation="tanh"), problems.classification(ways=WAYS).task(0)
    params, _ = problems.drawn(network)
    order = torch.tensor([2, 0, 1, *range(WAYS, outputs)])

    def outputs_of(learner: Any, y: Tensor) -> Tensor:
        adapted = learner.adapt(params, {}, task.x_support, y)
        return learner.predict(adapted, task.x_query)[0].softmax(-1)

    plain = make(network, CROSS_ENTROPY, 0.3, 2)
    averaged = label_averaged(plain, label_orders(outputs, math.factorial(outputs)))
    y = task.y_support
    assert_close(outputs_of(averaged, order[y])[:, order], outputs_of(averaged, y))
    assert (outputs_of(plain, order[y])[:, order] - outputs_of(plain, y)).abs().max() > 1e-3


@pytest.mark.parametrize("mode", ["loop", "vmap"])
@pytest.mark.parametrize("norm", ["support", "transductive"])
def test_scores_by_order_are_those_of_each_order_alone(norm: str, mode: str) -> None:
    network = conv4(1, 16, WAYS, filters=4, norm=norm)
    params, buffers = problems.drawn(network)
    learner, orders = maml(network, CROSS_ENTROPY, 0.5, 2), label_orders(WAYS, 4)
    batch = problems.classification(tasks=3, ways=WAYS, shots=1, queries=4, shape=(1, 16, 16))
    sampler: Any = Tasks(batch)
    labels = by_label_order(learner, params, buffers, sampler, CROSS_ENTROPY, orders, 3, Plan(mode), batch=2)
    for column, order in enumerate(orders):
        alone = evaluate(relabelled(learner, order), params, buffers, sampler, CROSS_ENTROPY, 3)
        assert labels.scores[:, column].tolist() == pytest.approx(alone.scores)
    averaged = label_averaged(learner, orders)
    alone = evaluate(averaged, params, buffers, sampler, CROSS_ENTROPY, 3)
    assert labels.averaged.tolist() == pytest.approx(alone.scores)
    scores = labels.scores.numpy()
    assert labels.spread.tolist() == pytest.approx((scores.max(1) - scores.min(1)).tolist())
    assert labels.deviation.tolist() == pytest.approx(scores.std(1).tolist())
    assert labels.spread.max() > 0


# ---- settings ----

TINY = [
    *("data.name=glyphs", "outer.steps=2", "outer.batch=1", "eval.episodes=3", "eval.validation_episodes=1"),
    *("tasks.queries=2", "tasks.ways=3", "model.filters=4", "inner.test_steps=2", "eval.curve=false"),
    *("run.execution=loop", "run.compile=off", "run.threads=1", "run.dtype=float64"),
]


def test_a_run_is_judged_in_several_orders_and_predicts_so(tmp_path: Path) -> None:
    run = il.Experiment("omniglot-maml", *TINY, f"run.folder={tmp_path}").fit(progress=False)
    plain, averaged = run.evaluate(), run.evaluate(label_orders=6)
    assert plain.protocol.get("label_orders") is None
    assert averaged.protocol["label_orders"] == 6
    assert "mean of 6 label orders" in brief({"protocol": averaged.protocol})
    pictures = np.asarray(glyphs().images[8000:8060])
    support, labels = pictures[::10], ["b", "b", "c", "c", "a", "a"]
    names = {"a": "c", "b": "a", "c": "b"}  # classes are sorted by name: these are other places
    renamed = [names[label] for label in labels]

    def table(given: list[str], *items: str) -> np.ndarray:
        return np.asarray(run.predict(support, given, pictures[5::10], *items).probabilities)

    one, other = (table(given, "eval.label_orders=6") for given in (labels, renamed))
    columns = ["abc".index(names[name]) for name in "abc"]
    np.testing.assert_allclose(other[:, columns], one, rtol=CHAINED)
    assert np.abs(table(renamed)[:, columns] - table(labels)).max() > 1e-6


def test_what_an_averaged_learner_adapts_can_be_kept() -> None:
    network, task = mlp(4, [6], WAYS), problems.classification(ways=WAYS).task(0)
    params, _ = problems.drawn(network)
    learner = label_averaged(anil(network, CROSS_ENTROPY, 0.3, 2), label_orders(WAYS, 3))
    state = learner.adapt(params, {}, task.x_support, task.y_support)
    fields, tensors = pack_state(state, params, {})
    assert len(tensors) == 3 * len(network.head_names)  # the body is not kept three times
    again = unpack_state(fields, tensors, params, {})
    assert torch.equal(learner.predict(again, task.x_query)[0], learner.predict(state, task.x_query)[0])


@pytest.mark.parametrize(
    ("recipe", "settings", "words"),
    [
        ("sine-maml", ["eval.label_orders=2"], "is for tasks with labels, and the loss is mse"),
        (
            "sine-reptile",
            ["inner.head_start=zero"],
            "all parameters: leave inner.head_start out",
        ),
        ("sine-anil", ["inner.online=trace", "inner.head_start=zero"], "leave inner.head_start out"),
    ],
)
def test_settings_that_do_not_fit(recipe: str, settings: list[str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        load_recipe(recipe, settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["eval.label_orders=7"], "eval.label_orders=7: 3 labels have 6 orders"),
        (["inner.method=boil", "inner.head_start=zero"], r"average over label orders \(eval.label_orders\)"),
    ],
)
def test_mistakes_are_told_before_training(settings: list[str], words: str, tmp_path: Path) -> None:
    experiment = il.Experiment("omniglot-maml", *TINY, *settings, f"run.folder={tmp_path}")
    with pytest.raises(UserError, match=words):
        experiment.fit(progress=False)
    assert not list(tmp_path.iterdir())


def test_settings_that_are_not_read_are_told() -> None:
    prototypes = load_recipe("omniglot-protonet", [])
    keys = ["inner.head_start", "eval.label_orders"]
    assert len(unread(prototypes, keys)) == 2
    symmetric = load_recipe("omniglot-maml", ["inner.head_start=one-vector"])
    assert unread(symmetric, keys) == [
        "eval.label_orders is not read: it is for learners whose last layer starts with a row per label."
    ]
    assert not unread(load_recipe("omniglot-maml", []), keys)


@pytest.mark.parametrize("method", [name for name in LEARNERS if depends_on_order(name)])
def test_every_learner_that_depends_on_the_order_can_be_averaged(method: str) -> None:
    case = labels()
    learner = build_learner(
        InnerSettings(method=method, lr=0.1, steps=2, loss=case.loss), case.network, 2, case.ways
    )
    params, buffers = problems.drawn(case.network)
    params, buffers = learner.init(params), learner.init_buffers(params, buffers)
    task, order = case.batch.to(dtype=torch.float64).task(0), torch.tensor([1, 2, 0])
    averaged = label_averaged(learner, label_orders(case.ways, 6))

    def probabilities(y: Tensor) -> Tensor:
        adapted = averaged.adapt(params, buffers, task.x_support, y)
        return averaged.predict(adapted, task.x_query)[0].exp()

    y = task.y_support
    assert_close(probabilities(order[y])[:, order], probabilities(y))
