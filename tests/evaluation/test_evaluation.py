"""Evaluation: the score of every episode, the same however it is run, and no graph."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.losses import get_loss
from innerloop.core.statistics import mean_interval
from innerloop.core.types import TaskBatch
from innerloop.evaluation import evaluate
from innerloop.evaluation.features import finite_problems
from innerloop.learners import Adapted, Learner, anil, boil, maml, maml_lslr, meta_sgd, non_adaptive
from innerloop.nets import NORM_POLICIES, conv4, mlp
from innerloop.tasks import Sampler, get_family, make_sampler
from innerloop.testing.closeness import ROUNDED, assert_close
from innerloop.training import Plan
from oracles import maml_loop, problems
from oracles.forward import conv4_forward, mlp_forward

PLANS = [Plan("loop"), Plan("vmap"), Plan("vmap", chunk=7), Plan("threads", 2), Plan("vmap", compile="full")]


def sines() -> Sampler:
    return make_sampler(get_family("sine"), seed=3, split="test", shots=5, queries=7, dtype=torch.float64)


def pictures() -> Sampler:
    return Sampler(
        lambda indices: TaskBatch(*(torch.cat(f) for f in zip(*map(one_picture, indices), strict=True)))
    )


def one_picture(i: int) -> TaskBatch:
    return problems.images(1, seed=i)


def test_scores_are_those_of_the_explicit_loop() -> None:
    network, loss = mlp(1, [8], 1), get_loss("half-mse")
    params, buffers = problems.drawn(network)
    evaluation = evaluate(maml(network, loss, 0.01, 3), params, buffers, sines(), loss, episodes=11)
    leaves = {n: p.clone().requires_grad_() for n, p in params.items()}
    forward, inner = mlp_forward(torch.relu), maml_loop.Inner(0.01, 3)
    half = lambda a, b: F.mse_loss(a, b) / 2  # noqa: E731
    expected = []
    for i in range(11):
        task = sines().episode(i)
        adapted = maml_loop.adapt(forward, half, leaves, inner, task.x_support, task.y_support)
        expected.append(
            F.mse_loss(forward(adapted, task.x_query)[0], task.y_query).detach()
        )  # no ½ in scores
    assert_close(torch.tensor(evaluation.scores, dtype=torch.float64), torch.stack(expected))
    assert evaluation.interval == mean_interval(evaluation.scores)
    assert evaluation.score == "mse"


def test_accuracy() -> None:
    network, loss = conv4(1, 16, 3, filters=4), get_loss("cross-entropy")
    params, buffers = problems.drawn(network)
    evaluation = evaluate(non_adaptive(network), params, buffers, pictures(), loss, episodes=6)
    expected = []
    for i in range(6):
        task = one_picture(i).task(0)
        outputs, _ = conv4_forward("max", "transductive")(params, task.x_query)
        expected.append(float((outputs.argmax(1) == task.y_query).double().mean()))
    assert evaluation.scores == expected
    assert evaluation.score == "accuracy"
    assert 0 < evaluation.interval.mean < 1


@pytest.mark.parametrize("make", [maml, anil, boil, meta_sgd, maml_lslr], ids=lambda f: f.__name__)
def test_all_plans_give_the_same_scores(make: Any) -> None:
    network, loss = mlp(1, [8], 1), get_loss("mse")
    learner: Learner = make(network, loss, 0.01, 2)
    params = learner.init(problems.drawn(network)[0])
    expected = torch.tensor(evaluate(learner, params, {}, sines(), loss, 23).scores, dtype=torch.float64)
    for plan in PLANS:
        for batch in (5, 100):
            evaluation = evaluate(learner, params, {}, sines(), loss, 23, plan, batch=batch)
            assert_close(torch.tensor(evaluation.scores, dtype=torch.float64), expected)


@pytest.mark.parametrize("norm", NORM_POLICIES)
def test_all_plans_agree_on_pictures(norm: str) -> None:
    network, loss = conv4(1, 16, 3, filters=2, norm=norm), get_loss("cross-entropy")
    params, buffers = problems.drawn(network)
    learner = maml(network, loss, 0.1, 2)
    expected = evaluate(learner, params, buffers, pictures(), loss, 5).scores
    for plan in PLANS[1:4]:
        assert evaluate(learner, params, buffers, pictures(), loss, 5, plan, batch=2).scores == expected


def test_running_statistics_are_used_and_not_changed() -> None:
    network, loss = conv4(1, 16, 3, filters=2, norm="running"), get_loss("mse")
    params, buffers = problems.drawn(network)
    before = {n: b.clone() for n, b in buffers.items()}
    learner = non_adaptive(network)

    def targets(
        i: int,
    ) -> TaskBatch:  # squared errors, because accuracies are too coarse to show a difference
        batch = one_picture(i)
        labels = [F.one_hot(y, 3).double() for y in (batch.y_support, batch.y_query)]
        return batch._replace(y_support=labels[0], y_query=labels[1])

    sampler = Sampler(lambda indices: targets(indices[0]))
    evaluation = evaluate(learner, params, buffers, sampler, loss, 3, batch=1)
    assert all(torch.equal(buffers[n], b) for n, b in before.items())
    task = targets(0).task(0)
    outputs, _ = network.features(params, buffers, task.x_query, "stored")
    expected = F.mse_loss(network.head(params, outputs), task.y_query, reduction="sum") / len(task.y_query)
    assert evaluation.scores[0] == pytest.approx(float(expected), rel=ROUNDED)
    other = evaluate(learner, params, {n: 2 * b + 1 for n, b in buffers.items()}, sampler, loss, 3, batch=1)
    assert other.scores[0] != pytest.approx(evaluation.scores[0], rel=1e-3)


@pytest.mark.parametrize("plan", PLANS[:4], ids=str)
def test_evaluation_builds_no_graph(plan: Plan) -> None:
    network, loss = mlp(1, [8], 1), get_loss("mse")
    learner = maml(network, loss, 0.01, 3)
    params = {n: p.requires_grad_() for n, p in problems.drawn(network)[0].items()}
    outputs: list[Tensor] = []

    def predict(adapted: Adapted, x: Tensor, training: bool = False) -> Any:
        evaluation = learner.predict(adapted, x, training)
        outputs.append(evaluation[0])
        return evaluation

    evaluation = evaluate(learner._replace(predict=predict), params, {}, sines(), loss, 9, plan)
    assert outputs
    assert not any(tensor.requires_grad for tensor in outputs)
    assert all(isinstance(score, float) for score in evaluation.scores)
    assert all(p.grad is None for p in params.values())


def test_evaluation_keeps_nothing() -> None:
    network, loss = mlp(1, [8], 1), get_loss("mse")
    learner, params = maml(network, loss, 0.01, 2), problems.drawn(network)[0]

    def tensors() -> int:
        gc.collect()
        return sum(issubclass(type(o), Tensor) for o in gc.get_objects())

    evaluate(learner, params, {}, sines(), loss, 10)
    before = tensors()
    for _ in range(3):
        evaluate(learner, params, {}, sines(), loss, 30)
    assert tensors() == before


def test_episodes_are_the_first_ones_of_the_stream() -> None:
    asked: list[int] = []

    def episodes(indices: Any) -> Any:
        asked.extend(indices)
        return sines().episodes(indices)

    network, loss = mlp(1, [4], 1), get_loss("mse")
    evaluation = evaluate(
        maml(network, loss, 0.01), problems.drawn(network)[0], {}, Sampler(episodes), loss, 7, batch=3
    )
    assert asked == list(range(7))
    assert evaluation.interval.n == 7


def test_features_that_are_not_finite():
    z = torch.tensor([[1.0, 2.0], [torch.nan, 0.0], [-torch.inf, 0.0]])
    assert finite_problems(z).tolist() == [True, False, False]
