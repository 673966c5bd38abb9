"""Meta-gradients of every learner and objective, against finite differences and an explicit loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.types import Task, TaskBatch
from innerloop.learners import (
    Learner,
    Objective,
    adam,
    anil,
    boil,
    episodic,
    erm,
    maml,
    maml_lslr,
    meta_sgd,
    momentum,
    multitask,
    reptile,
    sgd,
)
from innerloop.nets import Network, conv4, mlp
from innerloop.testing.closeness import FINITE_DIFFERENCE, assert_close, assert_trees_close
from innerloop.training import Plan, meta_gradient
from oracles import finite_differences as fd
from oracles import maml_loop, problems
from oracles.forward import conv4_forward, mlp_forward

Tree = dict[str, Tensor]
LR, STEPS = 0.1, 3
RULES = {"sgd": sgd, "momentum": momentum, "adam": adam}


def head(name: str) -> bool:
    return name.startswith(("layer2", "head"))


class Case(NamedTuple):
    """A learner of ours, and the same thing said to the twin."""

    make: Callable[..., Learner]
    options: dict[str, Any]
    twin: dict[str, Any]


CASES = {
    "maml": Case(maml, {}, {}),
    "fomaml": Case(maml, {"first_order": True}, {"first_order": True}),
    "truncate": Case(maml, {"truncate": 2}, {"truncate": 2}),
    "anil": Case(anil, {}, {"moves": head}),
    "anil-first-order": Case(anil, {"first_order": True}, {"moves": head, "first_order": True}),
    "anil-truncate": Case(anil, {"truncate": 1}, {"moves": head, "truncate": 1}),
    "boil": Case(boil, {}, {"moves": lambda n: not head(n)}),
    "boil-truncate": Case(boil, {"truncate": 1}, {"moves": lambda n: not head(n), "truncate": 1}),
    "meta-sgd": Case(meta_sgd, {}, {"rates": "per-weight"}),
    "meta-sgd-first-order": Case(
        meta_sgd, {"first_order": True}, {"rates": "per-weight", "first_order": True}
    ),
    "lslr": Case(maml_lslr, {}, {"rates": "per-step"}),
    "lslr-truncate": Case(maml_lslr, {"truncate": 1}, {"rates": "per-step", "truncate": 1}),
}
EXACT = [name for name, case in CASES.items() if not case.options]


def built(case: Case, network: Network, loss: str, rule: str, **options: Any) -> tuple[Learner, Tree, Tree]:
    """The learner, and parameters with unequal learned rates."""
    learner = case.make(network, get_loss(loss), LR, STEPS, rule=RULES[rule](), **case.options, **options)
    params, buffers = problems.drawn(network)
    own = learner.init(params)
    rates = problems.shaken({n: p for n, p in own.items() if n not in params})
    return learner, {**own, **rates}, buffers


def mean_loss(objective: Objective, buffers: Tree, batch: TaskBatch) -> Callable[[Tree], Tensor]:
    assert objective.loss is not None
    value = objective.loss
    return lambda params: torch.stack([value(params, buffers, task)[0] for task in batch.tasks()]).mean()


def check_against_differences(objective: Objective, params: Tree, buffers: Tree, batch: TaskBatch) -> None:
    grads = meta_gradient(objective.loss, Plan("vmap"))(params, buffers, batch).grads
    for seed in (0, 1):
        direction = fd.random_direction(params, seed)
        expected = fd.directional(mean_loss(objective, buffers, batch), params, direction)
        assert_close(fd.along(grads, direction), expected, FINITE_DIFFERENCE)


# ---- through the inner loop ----


@pytest.mark.parametrize("split", [True, False], ids=["split", "no-split"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", EXACT)
@pytest.mark.one_in(2)
def test_meta_gradient_is_the_derivative(
    name: str, rule: str, split: bool, smooth_net: Network, regression_batch: TaskBatch
) -> None:
    learner, params, buffers = built(CASES[name], smooth_net, "mse", rule)
    objective = episodic(learner, get_loss("half-mse"), split)
    check_against_differences(objective, params, buffers, regression_batch)


@pytest.mark.parametrize("mode", ["vmap", "loop"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", CASES)
def test_meta_gradient_equals_the_explicit_loop(name: str, rule: str, mode: str) -> None:
    # a dead ReLU has gradient zero, where the twin's Adam cannot be differentiated (ours can: test_learners)
    activation = "tanh" if rule == "adam" else "relu"
    network, batch = mlp(2, [6, 5], 1, activation=activation), problems.regression()
    learner, params, buffers = built(CASES[name], network, "mse", rule)
    forward = mlp_forward(getattr(torch, activation))
    inner = maml_loop.Inner(LR, STEPS, rule=rule, **CASES[name].twin)
    objective = episodic(learner, get_loss("mse"))
    gradient = meta_gradient(objective.loss, Plan(mode))(params, buffers, batch)
    losses, grads = maml_loop.meta_gradient(
        lambda p, task: maml_loop.task_loss(forward, F.mse_loss, p, inner, task),
        params,
        batch.tasks(),
    )
    assert_close(gradient.losses, losses)
    assert_trees_close(gradient.grads, grads)


@pytest.mark.parametrize("norm", ["none", "group", "transductive", "support"])
@pytest.mark.parametrize("pooling", ["max", "stride"])
@pytest.mark.parametrize("name", ["maml", "fomaml", "anil", "boil"])
def test_conv4_equals_the_explicit_loop(name: str, pooling: str, norm: str, image_batch: TaskBatch) -> None:
    network = conv4(1, 16, 3, filters=4, pooling=pooling, norm=norm)
    learner, params, buffers = built(CASES[name], network, "cross-entropy", "sgd")
    inner = maml_loop.Inner(LR, STEPS, **CASES[name].twin)
    forward = conv4_forward(pooling, norm)
    gradient = meta_gradient(episodic(learner, get_loss("cross-entropy")).loss, Plan("vmap"))(
        params, buffers, image_batch
    )
    losses, grads = maml_loop.meta_gradient(
        lambda p, task: maml_loop.task_loss(forward, F.cross_entropy, p, inner, task, norm),
        params,
        image_batch.tasks(),
    )
    assert_close(gradient.losses, losses)
    assert_trees_close(gradient.grads, grads)


def test_without_split_support_and_query_are_one_set(
    smooth_net: Network, regression_batch: TaskBatch
) -> None:
    learner, params, buffers = built(CASES["maml"], smooth_net, "mse", "sgd")
    inner = maml_loop.Inner(LR, STEPS)
    gradient = meta_gradient(episodic(learner, get_loss("mse"), split=False).loss, Plan("vmap"))(
        params, buffers, regression_batch
    )
    _, grads = maml_loop.meta_gradient(
        lambda p, t: maml_loop.task_loss(mlp_forward(torch.tanh), F.mse_loss, p, inner, t, split=False),
        params,
        regression_batch.tasks(),
    )
    assert_trees_close(gradient.grads, grads)


@pytest.mark.parametrize("name", ["maml", "anil", "boil", "lslr"])
def test_recomputed_inner_steps_change_nothing(
    name: str, smooth_net: Network, regression_batch: TaskBatch
) -> None:
    results = []
    for checkpoint in (False, True):
        learner, params, buffers = built(CASES[name], smooth_net, "mse", "adam", checkpoint=checkpoint)
        run = meta_gradient(episodic(learner, get_loss("mse")).loss, Plan("threads", 2))
        results.append(run(params, buffers, regression_batch))
    assert_trees_close(results[1].grads, results[0].grads)


def test_recomputed_inner_steps_keep_less(smooth_net: Network, regression_batch: TaskBatch) -> None:
    from innerloop.core.autodiff import plain_autograd

    def kept(checkpoint: bool) -> int:
        saved = 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal saved
            saved += tensor.numel()
            return tensor

        learner = maml(smooth_net, get_loss("mse"), LR, 10, checkpoint=checkpoint)
        params, buffers = problems.drawn(smooth_net)
        leaves = {n: p.requires_grad_() for n, p in params.items()}
        loss = episodic(learner, get_loss("mse")).loss
        assert loss is not None
        with plain_autograd(), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            loss(leaves, buffers, regression_batch.task(0))
        return saved

    assert kept(True) < kept(False) / 4


# ---- without an inner loop ----


@pytest.mark.parametrize("norm", ["none", "group", "transductive", "support", "running"])
def test_erm_is_the_loss_on_all_samples(norm: str, image_batch: TaskBatch) -> None:
    network = conv4(1, 16, 3, filters=4, norm=norm)
    params, buffers = problems.drawn(network)
    gradient = meta_gradient(erm(network, get_loss("cross-entropy")).loss, Plan("vmap"))(
        params, buffers, image_batch
    )

    def one(p: Tree, task: tuple[Tensor, ...]) -> Tensor:
        xs, ys, xq, yq = task[:4]
        outputs, _ = conv4_forward("max", norm)(p, torch.cat([xs, xq]))
        return F.cross_entropy(outputs, torch.cat([ys, yq]))

    losses, grads = maml_loop.meta_gradient(one, params, image_batch.tasks())
    assert_close(gradient.losses, losses)
    assert_trees_close(gradient.grads, grads)


@pytest.mark.parametrize("heads", ["shared", "independent"])
def test_multitask_regression_heads(heads: str, smooth_net: Network, regression_batch: TaskBatch) -> None:
    objective = multitask(smooth_net, get_loss("mse"), 3, heads)
    params, buffers = problems.drawn(smooth_net)
    params = objective.init(params, torch.Generator().manual_seed(0))
    check_against_differences(objective, params, buffers, regression_batch)
    batch = regression_batch._replace(id=torch.tensor([2, 0, 0]))
    gradient = meta_gradient(objective.loss, Plan("vmap"))(params, buffers, batch)

    def one(p: Tree, task: tuple[Tensor, ...]) -> Tensor:
        i = int(task[4])
        own = {**p, "layer2.weight": p["heads.layer2.weight"][i], "layer2.bias": p["heads.layer2.bias"][i]}
        x, y = torch.cat([task[0], task[2]]), torch.cat([task[1], task[3]])
        return F.mse_loss(mlp_forward(torch.tanh)(own, x)[0], y)

    losses, grads = maml_loop.meta_gradient(one, params, batch.tasks())
    assert_close(gradient.losses, losses)
    assert_trees_close(gradient.grads, grads)
    assert not gradient.grads["heads.layer2.weight"][1].any()  # no task of the batch owns this head
    assert not gradient.grads["layer2.weight"].any()  # the head for test tasks is not trained


def test_heads_are_drawn_shared_or_independently() -> None:
    network = mlp(2, [400], 1)
    params, _ = network.init(torch.Generator().manual_seed(0))
    own = params["layer1.weight"]
    for heads in ("shared", "independent"):
        objective = multitask(network, get_loss("mse"), 50, heads)
        made = objective.init(params, torch.Generator().manual_seed(1))["heads.layer1.weight"]
        assert made.shape == (50, 1, 400)
        assert bool((made == own).all()) == (heads == "shared")
        if heads == "independent":
            assert abs(float(made.std() / own.std()) - 1) < 0.1  # the same spread as the network's own
            assert abs(float(torch.corrcoef(made[:2, 0])[0, 1])) < 0.25


def test_multitask_class_rows() -> None:
    network, batch = mlp(4, [6, 5], 3, activation="tanh"), problems.classification()
    objective = multitask(network, get_loss("cross-entropy"), 7)
    params, buffers = problems.drawn(network)
    params = problems.shaken(objective.init(params, torch.Generator().manual_seed(0)))
    assert params["heads.layer2.weight"].shape == (7, 5)
    assert params["heads.layer2.bias"].shape == (7,)
    check_against_differences(objective, params, buffers, batch)
    gradient = meta_gradient(objective.loss, Plan("vmap"))(params, buffers, batch)

    def one(p: Tree, task: tuple[Tensor, ...]) -> Tensor:
        rows = [int(c) for c in task[4]]
        own = {**p}
        own["layer2.weight"] = torch.stack([p["heads.layer2.weight"][r] for r in rows])
        own["layer2.bias"] = torch.stack([p["heads.layer2.bias"][r] for r in rows])
        x, y = torch.cat([task[0], task[2]]), torch.cat([task[1], task[3]])
        return F.cross_entropy(mlp_forward(torch.tanh)(own, x)[0], y)

    losses, grads = maml_loop.meta_gradient(one, params, batch.tasks())
    assert_close(gradient.losses, losses)
    assert_trees_close(gradient.grads, grads)


def test_heads_that_make_no_sense_are_refused(smooth_net: Network) -> None:
    with pytest.raises(UserError, match="shared"):
        multitask(smooth_net, get_loss("mse"), 3, "sharde")
    with pytest.raises(UserError, match="independent"):
        multitask(smooth_net, get_loss("cross-entropy"), 3, "shared")


# ---- no gradient at all ----


@pytest.mark.parametrize("mode", ["vmap", "loop", "threads"])
@pytest.mark.parametrize("rule", RULES)
def test_reptile_points_from_the_adapted_to_the_present(
    rule: str, mode: str, smooth_net: Network, regression_batch: TaskBatch
) -> None:
    learner, params, buffers = built(CASES["maml"], smooth_net, "mse", rule)
    objective = reptile(learner, get_loss("mse"))
    plan = Plan(mode, 2)  # type: ignore[arg-type]
    gradient = meta_gradient(None, plan, direction=objective.direction)(params, buffers, regression_batch)
    inner = maml_loop.Inner(LR, STEPS, rule=rule)
    leaves = {n: p.clone().requires_grad_() for n, p in params.items()}
    ends = []
    for task in regression_batch.tasks():
        x, y = torch.cat([task[0], task[2]]), torch.cat([task[1], task[3]])
        ends.append(maml_loop.adapt(mlp_forward(torch.tanh), F.mse_loss, leaves, inner, x, y))
    expected = {n: torch.stack([p - end[n].detach() for end in ends]).mean(0) for n, p in params.items()}
    assert_trees_close(gradient.grads, expected)
    losses = [
        F.mse_loss(mlp_forward(torch.tanh)(end, task.x_query)[0], task.y_query)
        for end, task in zip(ends, regression_batch.tasks(), strict=True)
    ]
    assert_close(gradient.losses, torch.stack(losses).detach())


def test_one_step_of_reptile_is_the_gradient_of_erm(smooth_net: Network, regression_batch: TaskBatch) -> None:
    params, buffers = problems.drawn(smooth_net)
    learner = maml(smooth_net, get_loss("mse"), LR, 1)
    direction = reptile(learner, get_loss("mse")).direction
    moved = meta_gradient(None, Plan("vmap"), direction=direction)(params, buffers, regression_batch).grads
    plain = meta_gradient(erm(smooth_net, get_loss("mse")).loss, Plan("vmap"))
    expected = plain(params, buffers, regression_batch).grads
    assert_trees_close({n: g / LR for n, g in moved.items()}, expected)


def test_objectives_leave_their_inputs_alone(image_batch: TaskBatch) -> None:
    network = conv4(1, 16, 3, filters=4, norm="running")
    params, buffers = problems.drawn(network)
    before = {n: t.clone() for n, t in {**params, **buffers}.items()}
    task: Task = image_batch.task(0)
    learner = maml(network, get_loss("cross-entropy"), LR, 2)
    for objective in (episodic(learner, get_loss("cross-entropy")), erm(network, get_loss("cross-entropy"))):
        assert objective.loss is not None
        _, after = objective.loss(params, buffers, task)
        assert all(torch.equal(t, before[n]) for n, t in {**params, **buffers}.items())
        assert not torch.equal(after["norm0.mean"], buffers["norm0.mean"])
