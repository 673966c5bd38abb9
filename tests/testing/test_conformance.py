"""Every learner, objective, network, family and sampler of ours passes the suites that users run on theirs.

A new one is in the suites, or a test here says that it is not.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

import innerloop.learners
import innerloop.learners.objectives
import innerloop.nets
import innerloop.tasks
from innerloop.core.losses import get_loss
from innerloop.core.types import TaskBatch
from innerloop.data.glyphs import glyphs
from innerloop.learners import LEARNERS, Objective, anil, episodic, erm, maml, multitask, reptile
from innerloop.learners.objectives.distillation import distilled, teacher_of
from innerloop.learners.online import Online
from innerloop.learners.orders import label_averaged, label_orders, relabelled
from innerloop.learners.table import OTHERS
from innerloop.nets import BACKBONES, Network, conv4, from_module, mlp, resnet12, wide_resnet
from innerloop.nets.antisymmetric import antisymmetric
from innerloop.nets.cells.network import cell_network
from innerloop.nets.convolutional import convnet, r2d2_conv
from innerloop.nets.efficientnet_lite import efficientnet_lite
from innerloop.nets.module import whole_module
from innerloop.nets.network import with_last_layer
from innerloop.nets.neurons import logistic_model, neurons
from innerloop.nets.residual import residual_mlp, wide_network
from innerloop.tasks import FAMILIES, Sampler, make_sampler
from innerloop.tasks.few_shot import few_shot_sampler
from innerloop.tasks.supervised import supervised_sampler
from innerloop.tasks.table import Table, table_sampler
from innerloop.testing import check_learner, check_method, check_network, check_objective, check_tasks
from innerloop.testing.suites import labels, numbers

MSE, ENTROPY = get_loss("mse"), get_loss("cross-entropy")


def makers(room: ModuleType, kind: str) -> set[str]:
    """Public functions of a room that are annotated to return something of this kind."""
    found = set()
    for each in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
        for name, made in inspect.getmembers(importlib.import_module(each.name), inspect.isfunction):
            if made.__module__ == each.name and made.__annotations__.get("return") == kind:
                found.add(name)
    return {name for name in found if not name.startswith("_")}


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


# ---- learners ----

ENTRIES = {**LEARNERS, **OTHERS}
VARIANTS = [(name, variant) for name, entry in ENTRIES.items() for variant in ("", *entry.variants)]
WITHIN = {"gradient_learner": "maml", "embedding_learner": "protonet", "online_anil": "anil"}
"""What other learners are made by; these are in the table."""
WRAPPERS = {
    "relabelled": lambda learner: relabelled(learner, torch.tensor([2, 0, 1])),
    "label_averaged": lambda learner: label_averaged(learner, label_orders(3, 3)),
}


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
@pytest.mark.one_in(2)
def test_every_learner_conforms(name: str, variant: str) -> None:
    check_method(name, variant)


@pytest.mark.parametrize("name", WRAPPERS)
def test_every_wrapper_of_a_learner_conforms(name: str) -> None:
    case = labels()
    learner = WRAPPERS[name](anil(case.network, ENTROPY, 0.05, 2))
    weights = case.network.init(torch.Generator().manual_seed(0))
    check_learner(learner, *weights, case.batch, loss=case.loss)


def test_no_learner_is_forgotten() -> None:
    factories = {entry.factory.partition(":")[2] for entry in ENTRIES.values()}
    assert makers(innerloop.learners, "Learner") == factories | set(WITHIN) | set(WRAPPERS)
    assert set(WITHIN.values()) <= set(ENTRIES)
    assert {"off", *(v.settings["online"] for v in LEARNERS["anil"].variants.values())} == {*get_args(Online)}


# ---- objectives ----


def with_classes() -> TaskBatch:
    """Tasks whose classes are rows of one large head, some of them shared."""
    return labels().batch._replace(id=torch.tensor([[0, 5, 2], [5, 1, 3], [4, 0, 6]]))


def taught() -> Objective:
    network = labels().network
    params, buffers = network.init(torch.Generator().manual_seed(3))
    teacher = teacher_of(network, {name: value.double() for name, value in params.items()}, buffers)
    return distilled(network, ENTROPY, teacher)


SINES, CLASSES = numbers(), labels()
OBJECTIVES: dict[str, Callable[[], tuple[Objective, Network, TaskBatch]]] = {
    "episodic": lambda: (episodic(maml(SINES.network, MSE, 0.01, 3), MSE), SINES.network, SINES.batch),
    "episodic without a split": lambda: (
        episodic(anil(SINES.network, MSE, 0.01, 3), MSE, split=False),
        SINES.network,
        SINES.batch,
    ),
    "reptile": lambda: (reptile(maml(SINES.network, MSE, 0.01, 3), MSE), SINES.network, SINES.batch),
    "erm": lambda: (erm(SINES.network, MSE), SINES.network, SINES.batch),
    "multitask, shared start": lambda: (
        multitask(SINES.network, MSE, 10, "shared"),
        SINES.network,
        SINES.batch,
    ),
    "multitask": lambda: (multitask(SINES.network, MSE, 10, "independent"), SINES.network, SINES.batch),
    "multitask, rows of classes": lambda: (
        multitask(CLASSES.network, ENTROPY, 7),
        CLASSES.network,
        with_classes(),
    ),
    "distilled": lambda: (taught(), CLASSES.network, CLASSES.batch),
}
ROUNDING = {"in_bfloat16"}
"""Rounds on purpose, and is compared with what it rounds where mixed precision is tested."""


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_conforms(name: str) -> None:
    objective, network, batch = OBJECTIVES[name]()
    check_objective(objective, *network.init(torch.Generator().manual_seed(0)), batch)


def test_no_objective_is_forgotten() -> None:
    tried = {name.partition(" ")[0].rstrip(",") for name in OBJECTIVES}
    assert makers(innerloop.learners.objectives, "Objective") == tried | ROUNDING


# ---- networks ----

SMALL = mlp(3, [5], 2, activation="tanh")
TINY = (4, 4, 4, 4)
NETWORKS: dict[str, Callable[[], tuple[Network, Tensor]]] = {
    "mlp": lambda: (SMALL, randn(6, 3)),
    "antisymmetric": lambda: (antisymmetric(SMALL), randn(6, 3)),
    "with_last_layer": lambda: (with_last_layer(SMALL, "cosine"), randn(6, 3)),
    "whole_module": lambda: (whole_module(nn.Sequential(nn.Linear(3, 2), nn.Tanh()), "none"), randn(6, 3)),
    "from_module": lambda: (
        from_module(lambda: nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))),
        randn(6, 3),
    ),
    "neurons": lambda: (neurons(3, 2), randn(6, 3)),
    "logistic_model": lambda: (logistic_model(3), randn(6, 3)),
    "residual_mlp": lambda: (residual_mlp(3, 8, 2, 2), randn(6, 3)),
    "wide_network": lambda: (wide_network("residual-norm", 3, 8, 4), randn(6, 3)),
    "conv4": lambda: (conv4(1, 16, 3, filters=4), randn(4, 1, 16, 16)),
    "convnet": lambda: (convnet(1, 16, 3, depth=2, width=4), randn(4, 1, 16, 16)),
    "cell_network": lambda: (cell_network(1, 8, 2, cells=3, channels=4, norm="running"), randn(4, 1, 8, 8)),
    "r2d2_conv": lambda: (r2d2_conv(1, 16, 3, widths=TINY), randn(4, 1, 16, 16)),
    "resnet12": lambda: (resnet12(1, 16, 3, widths=TINY), randn(4, 1, 16, 16)),
    "wide_resnet": lambda: (wide_resnet(1, 16, 3, depth=10, widen=1), randn(4, 1, 16, 16)),
    "efficientnet_lite": lambda: (efficientnet_lite(3, 32, 3), randn(2, 3, 32, 32)),
}
BY_NAME = {"backbone", "build_backbone"}
"""These choose among the others."""


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_conforms(name: str) -> None:
    check_network(*NETWORKS[name]())


def test_no_network_is_forgotten() -> None:
    assert makers(innerloop.nets, "Network") == set(NETWORKS) | BY_NAME
    named = {getattr(make, "func", make).__name__ for make in BACKBONES.values()}
    assert named <= set(NETWORKS)


@pytest.mark.parametrize("norm", ["transductive", "support", "running", "group", "none"])
@pytest.mark.parametrize("pooling", ["max", "stride"])
def test_conv4_conforms_under_every_norm_policy(norm: str, pooling: str) -> None:
    net = conv4(1, 16, 3, filters=4, pooling=pooling, norm=norm)
    params, buffers = net.init(torch.Generator().manual_seed(0))
    x, y = randn(2, 2, 6, 1, 16, 16), torch.arange(3).repeat(2, 2)
    batch = TaskBatch(x[0], y, x[1], y, torch.zeros(2, 3, dtype=torch.int64))
    check_network(net, x[0][0])
    learner = maml(net, ENTROPY, 0.05, 2)
    check_learner(learner, params, buffers, batch, loss="cross-entropy", exact_gradient=False)
    check_objective(episodic(learner, ENTROPY), params, buffers, batch, exact_gradient=False)


def test_a_module_is_what_it_was() -> None:
    module = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 2))
    x = randn(6, 3)
    check_network(from_module(module, norm="transductive"), x, reference=module.train()(x).detach())


# ---- tasks ----


def table() -> Sampler:
    x, group = randn(40, 2).double().numpy(), torch.arange(40).numpy() // 8
    return table_sampler(Table(x, x[:, :1], group, ("a", "b", "c", "d", "e"), ("u", "v")), shots=2, queries=3)


SAMPLERS: dict[str, Callable[[], Sampler]] = {
    "make_sampler": lambda: make_sampler(FAMILIES["sine"], seed=3, shots=4, queries=5),
    "few_shot_sampler": lambda: few_shot_sampler(glyphs(), "train", seed=3, shots=2, queries=3),
    "supervised_sampler": lambda: supervised_sampler(glyphs(), "train", seed=0, size=7),
    "table_sampler": table,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_conforms(family: str) -> None:
    check_tasks(make_sampler(FAMILIES[family], seed=3, shots=4, queries=5))
    check_tasks(make_sampler(FAMILIES[family], seed=3, shots=4, queries=5, n_tasks=5, resample=False))


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_conforms(name: str) -> None:
    check_tasks(SAMPLERS[name]())


def test_no_family_and_no_sampler_is_forgotten() -> None:
    assert makers(innerloop.tasks, "Sampler") == set(SAMPLERS)
    assert makers(innerloop.tasks, "TaskBatch") == {family.__name__ for family in FAMILIES.values()}
