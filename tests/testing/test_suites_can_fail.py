"""The conformance suites find what is wrong: one broken thing each."""

import pytest
import torch

from innerloop.core.losses import get_loss
from innerloop.learners import Learner, Objective, maml, reptile
from innerloop.nets import mlp
from innerloop.tasks import FAMILIES, Sampler, make_sampler
from innerloop.testing import check_learner, check_objective, check_tasks

MSE = get_loss("mse")
NET = mlp(1, [8, 8], 1, activation="tanh")
MAML = maml(NET, MSE, 0.01, 3)


@pytest.fixture
def sines():
    return make_sampler(FAMILIES["sine"], seed=0, shots=5, queries=7, n_tasks=10).batch(0, 3)


@pytest.fixture
def weights():
    return NET.init(torch.Generator().manual_seed(0))


def test_an_impure_learner_is_found(sines, weights):
    good = MAML

    def adapt(params, buffers, x, y, training=False):
        params["layer0.weight"].add_(1.0)
        return good.adapt(params, buffers, x, y, training)

    with pytest.raises(AssertionError, match="changed its inputs"):
        check_learner(Learner("impure", adapt, good.predict), *weights, sines)


def test_a_wrong_gradient_is_found(sines, weights):
    good = MAML

    def adapt(params, buffers, x, y, training=False):
        return good.adapt({k: v.detach() for k, v in params.items()}, buffers, x, y, training)

    with pytest.raises(AssertionError, match="finite differences"):
        check_learner(Learner("detached", adapt, good.predict), *weights, sines)


def test_an_order_dependent_learner_is_found(sines, weights):
    good = MAML

    def adapt(params, buffers, x, y, training=False):
        return good.adapt(params, buffers, x[:2], y[:2], training)

    with pytest.raises(AssertionError, match="order of the support set"):
        check_learner(Learner("first two", adapt, good.predict), *weights, sines)


def test_an_objective_that_mixes_up_names_is_found(sines, weights):
    good = reptile(MAML, MSE)

    def direction(params, buffers, task):
        grads, loss, buffers = good.direction(params, buffers, task)
        return {f"other.{k}": v for k, v in grads.items()}, loss, buffers

    with pytest.raises(AssertionError, match="different names"):
        check_objective(Objective("renamed", direction=direction), *weights, sines)


def test_impure_tasks_are_found():
    good = make_sampler(FAMILIES["sine"], seed=0, shots=3, queries=3)
    calls = []

    def episodes(indices):
        calls.append(1)
        batch = good.episodes(indices)
        return batch._replace(x_query=batch.x_query + len(calls))

    with pytest.raises(AssertionError, match="alone and in a batch"):
        check_tasks(Sampler(episodes, name="impure"))
