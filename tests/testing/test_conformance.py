"""Every learner, objective, network and family of ours passes the suites that users run on theirs."""

import pytest
import torch
from torch import nn

from innerloop.core.losses import get_loss
from innerloop.core.types import TaskBatch
from innerloop.learners import LEARNERS, Learner, adam, anil, maml, momentum
from innerloop.nets import conv4, from_module, mlp
from innerloop.objectives import Objective, episodic, erm, multitask, reptile
from innerloop.tasks import FAMILIES, Sampler, make_sampler
from innerloop.testing import check_learner, check_method, check_network, check_objective, check_tasks

MSE = get_loss("mse")
NET = mlp(1, [8, 8], 1, activation="tanh")
MAML = maml(NET, MSE, 0.01, 3)
VARIANTS = {
    "maml-0-steps": maml(NET, MSE, 0.01, 0),
    "maml-adam": maml(NET, MSE, 0.01, 2, rule=adam()),
    "maml-momentum": maml(NET, MSE, 0.01, 3, rule=momentum()),
    "anil-online-h3": anil(NET, MSE, 0.01, 3, online="h3"),
    "anil-online-h15": anil(NET, MSE, 0.01, 3, online="h15"),
    "anil-online-trace": anil(NET, MSE, 0.01, 3, online="trace"),
    "truncated": maml(NET, MSE, 0.01, 3, truncate=1),
}


@pytest.fixture
def sines():
    return make_sampler(FAMILIES["sine"], seed=0, shots=5, queries=7, n_tasks=10).batch(0, 3)


@pytest.fixture
def weights():
    return NET.init(torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_of_the_table_conforms(name):
    check_method(name)


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_conform(name, sines, weights):
    check_learner(VARIANTS[name], *weights, sines, exact_gradient=name != "truncated")


@pytest.mark.parametrize(
    "objective",
    [
        episodic(MAML, MSE),
        episodic(anil(NET, MSE, 0.01, 3), MSE, split=False),
        erm(NET, MSE),
        multitask(NET, MSE, 10, "shared"),
        multitask(NET, MSE, 10, "independent"),
        reptile(MAML, MSE),
    ],
    ids=lambda o: o.name,
)
def test_objectives_conform(objective, sines, weights):
    check_objective(objective, *weights, sines)


def test_class_rows_conform(weights):
    net = mlp(4, [6], 3, activation="tanh")
    params, buffers = net.init(torch.Generator().manual_seed(0))
    g = torch.Generator().manual_seed(1)
    x = [torch.randn(2, 6, 4, generator=g) for _ in range(2)]
    y = torch.arange(3).repeat(2, 2)
    batch = TaskBatch(x[0], y, x[1], y, torch.tensor([[0, 5, 2], [5, 1, 3]]))
    check_objective(multitask(net, get_loss("cross-entropy"), 7), params, buffers, batch)


@pytest.mark.parametrize("norm", ["transductive", "support", "running", "group", "none"])
@pytest.mark.parametrize("pooling", ["max", "stride"])
def test_conv4_conforms_under_every_norm_policy(norm, pooling):
    net = conv4(1, 16, 3, filters=4, pooling=pooling, norm=norm)
    params, buffers = net.init(torch.Generator().manual_seed(0))
    g = torch.Generator().manual_seed(1)
    x = [torch.randn(2, 6, 1, 16, 16, generator=g) for _ in range(2)]
    y = torch.arange(3).repeat(2, 2)
    batch = TaskBatch(x[0], y, x[1], y, torch.zeros(2, 3, dtype=torch.int64))
    check_network(net, x[0][0])
    loss = get_loss("cross-entropy")
    learner = maml(net, loss, 0.05, 2)
    check_learner(learner, params, buffers, batch, loss="cross-entropy", exact_gradient=False)
    check_objective(episodic(learner, loss), params, buffers, batch, exact_gradient=False)


def test_module_conforms():
    module = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 2))
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    check_network(from_module(module, norm="transductive"), x, reference=module.train()(x).detach())


@pytest.mark.parametrize("family", FAMILIES)
def test_families_conform(family):
    check_tasks(make_sampler(FAMILIES[family], seed=3, shots=4, queries=5))
    check_tasks(make_sampler(FAMILIES[family], seed=3, shots=4, queries=5, n_tasks=5, resample=False))


# the suites must be able to fail


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
