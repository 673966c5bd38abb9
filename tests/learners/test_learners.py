"""Learners against ``higher``, against ``torch.optim``, and against what can be done by hand."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from innerloop.core.autodiff import plain_autograd
from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.types import TaskBatch
from innerloop.learners import (
    Learner,
    adam,
    anil,
    boil,
    episodic,
    maml,
    maml_lslr,
    meta_sgd,
    momentum,
    non_adaptive,
    sgd,
)
from innerloop.learners.updates import safe_sqrt
from innerloop.nets import Network, conv4, from_module, mlp
from innerloop.testing.closeness import assert_close, assert_trees_close, assert_trees_equal
from innerloop.training import Plan, meta_gradient
from oracles import maml_loop, problems
from oracles.closed_forms import quadratic_maml
from oracles.forward import mlp_forward

Tree = dict[str, Tensor]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    higher = pytest.importorskip("higher", reason="the peer is in the extra `peers`")


# ---- higher ----


def as_module(params: Tree, pooling: str | None = None, norm: str = "none") -> tuple[nn.Module, list[str]]:
    """The same network as an ``nn.Sequential``, and our names of its parameters in its order."""
    layers: list[nn.Module] = []
    names: list[str] = []
    if pooling is None:
        depth = sum(n.endswith("weight") for n in params)
        for i in range(depth):
            rows, columns = params[f"layer{i}.weight"].shape
            layers += [nn.Linear(columns, rows), nn.ReLU()]
            names += [f"layer{i}.weight", f"layer{i}.bias"]
        layers.pop()
    else:
        for i in range(4):
            n_out, n_in = params[f"conv{i}.weight"].shape[:2]
            layers.append(nn.Conv2d(n_in, n_out, 3, stride=2 if pooling == "stride" else 1, padding=1))
            names += [f"conv{i}.weight", f"conv{i}.bias"]
            if norm != "none":
                by_batch = nn.BatchNorm2d(n_out, track_running_stats=False)
                layers.append(nn.GroupNorm(n_out, n_out) if norm == "group" else by_batch)
                names += [f"norm{i}.weight", f"norm{i}.bias"]
            layers += [nn.ReLU()] + ([nn.MaxPool2d(2)] if pooling == "max" else [])
        rows, columns = params["head.weight"].shape
        layers += [nn.Flatten(), nn.Linear(columns, rows)]
        names += ["head.weight", "head.bias"]
    module = nn.Sequential(*layers).double()
    for p, name in zip(module.parameters(), names, strict=True):
        p.data.copy_(params[name])
    return module, names


def higher_gradient(
    module: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    optimiser: torch.optim.Optimizer,
    steps: int,
    batch: TaskBatch,
) -> tuple[Tensor, list[Tensor]]:
    """Losses and meta-gradient as ``higher`` computes them."""
    losses = []
    for task in batch.tasks():
        with higher.innerloop_ctx(module, optimiser, copy_initial_weights=False) as (net, inner):
            for _ in range(steps):
                inner.step(loss(net(task.x_support), task.y_support))
            losses.append(loss(net(task.x_query), task.y_query))
    total = torch.stack(losses)
    return total.detach(), list(torch.autograd.grad(total.mean(), list(module.parameters())))


def check_against_higher(
    network: Network,
    params: Tree,
    buffers: Tree,
    batch: TaskBatch,
    loss: str,
    steps: int,
    rule: str,
    pooling: str | None = None,
) -> None:
    module, names = as_module(params, pooling, network.norm)
    decay = {"sgd": 0.0, "momentum": 0.9}[rule]
    optimiser = torch.optim.SGD(module.parameters(), lr=0.05, momentum=decay)
    torch_loss = F.mse_loss if loss == "mse" else F.cross_entropy
    losses, grads = higher_gradient(module, torch_loss, optimiser, steps, batch)
    learner = maml(network, get_loss(loss), 0.05, steps, rule=sgd() if rule == "sgd" else momentum(0.9))
    gradient = meta_gradient(episodic(learner, get_loss(loss)).loss, Plan("vmap"))(params, buffers, batch)
    assert_close(gradient.losses, losses)
    assert_trees_close(gradient.grads, dict(zip(names, grads, strict=True)))


@pytest.mark.parametrize("rule", ["sgd", "momentum"])
@pytest.mark.parametrize("seed", range(5))
def test_maml_equals_higher_on_random_mlps(seed: int, rule: str) -> None:
    draw = torch.Generator().manual_seed(seed)
    depth, steps, inputs, tasks = (int(torch.randint(1, 4, (1,), generator=draw)) for _ in range(4))
    hidden = torch.randint(2, 9, (depth,), generator=draw).tolist()
    network = mlp(inputs, hidden, 1)
    params, buffers = problems.drawn(network, seed)
    batch = problems.regression(tasks, inputs=inputs, seed=seed)
    check_against_higher(network, params, buffers, batch, "mse", steps, rule)


@pytest.mark.parametrize("norm", ["none", "group", "transductive"])
@pytest.mark.parametrize("pooling", ["max", "stride"])
def test_maml_equals_higher_on_conv4(pooling: str, norm: str, image_batch: TaskBatch) -> None:
    network = conv4(1, 16, 3, filters=4, pooling=pooling, norm=norm)
    params, buffers = problems.drawn(network)
    check_against_higher(network, params, buffers, image_batch, "cross-entropy", 2, "sgd", pooling)


# ---- by hand ----


@pytest.mark.parametrize("mode", ["vmap", "loop"])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_quadratic_by_hand(steps: int, mode: str) -> None:
    # one weight, input 1, ½·mse: the task's loss is ½(θ − target)²
    network, loss = mlp(1, [], 1, bias=False), get_loss("half-mse")
    theta, rate, inner, outer = 0.7, 0.3, -1.2, 2.5
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    batch = TaskBatch(one, inner * one, one, outer * one, torch.zeros(1, dtype=torch.int64))
    params = {"layer0.weight": torch.full((1, 1), theta, dtype=torch.float64)}
    gradient = meta_gradient(episodic(maml(network, loss, rate, steps), loss).loss, Plan(mode))(
        params, {}, batch
    )
    value, slope = quadratic_maml(theta, rate, steps, inner, outer)
    assert_close(gradient.losses, torch.tensor([value], dtype=torch.float64))
    assert_close(gradient.grads["layer0.weight"], torch.full((1, 1), slope, dtype=torch.float64))
    first = maml(network, loss, rate, steps, first_order=True)
    gradient = meta_gradient(episodic(first, loss).loss, Plan(mode))(params, {}, batch)
    slope /= (1 - rate) ** steps  # the first-order gradient lacks the derivative of the adaptation
    assert_close(gradient.grads["layer0.weight"], torch.full((1, 1), slope, dtype=torch.float64))


def test_learned_rate_of_the_quadratic_by_hand() -> None:
    # θ' = θ − a(θ − inner), so dL/da = −(θ − inner)(θ' − outer)
    network, loss = mlp(1, [], 1, bias=False), get_loss("half-mse")
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    batch = TaskBatch(one, -1.2 * one, one, 2.5 * one, torch.zeros(1, dtype=torch.int64))
    for learner in (meta_sgd(network, loss, 0.3), maml_lslr(network, loss, 0.3)):
        params = learner.init({"layer0.weight": torch.full((1, 1), 0.7, dtype=torch.float64)})
        gradient = meta_gradient(episodic(learner, loss).loss, Plan("vmap"))(params, {}, batch)
        end = 0.7 - 0.3 * 1.9
        expected = torch.tensor(-1.9 * (end - 2.5), dtype=torch.float64)
        assert_close(gradient.grads["inner_lr.layer0.weight"].squeeze(), expected)


# ---- inner update rules ----

RULES = {
    "sgd": (sgd(), lambda p: torch.optim.SGD(p, lr=0.05)),
    "momentum": (momentum(0.8), lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8)),
    "adam": (adam(), lambda p: torch.optim.Adam(p, lr=0.05)),
    "adam-betas": (adam(0.5, 0.9, 1e-3), lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.5, 0.9), eps=1e-3)),
}


@pytest.mark.parametrize("name", RULES)
def test_inner_rules_equal_torch_optim_step_by_step(name: str, regression_batch: TaskBatch) -> None:
    rule, make = RULES[name]
    network, loss, task = mlp(2, [6], 1), get_loss("mse"), regression_batch.task(0)
    params, _ = problems.drawn(network)
    leaves = {n: p.clone().requires_grad_() for n, p in params.items()}
    optimiser = make(list(leaves.values()))
    for steps in range(1, 8):
        optimiser.zero_grad()
        F.mse_loss(mlp_forward(torch.relu)(leaves, task.x_support)[0], task.y_support).backward()
        optimiser.step()
        ours = maml(network, loss, 0.05, steps, rule=rule).adapt(params, {}, task.x_support, task.y_support)
        assert_trees_close(ours.params, {n: p.detach() for n, p in leaves.items()})


@pytest.mark.parametrize("mode", ["vmap", "loop"])
def test_adam_can_be_differentiated_where_gradients_are_zero(mode: str, regression_batch: TaskBatch) -> None:
    network, loss = mlp(2, [6], 1), get_loss("mse")
    params, _ = problems.drawn(network)
    params["layer0.bias"] = params["layer0.bias"].clone()
    params["layer0.bias"][:3] = -100.0  # three dead units: all their gradients are exactly zero
    learner = maml(network, loss, 0.05, 3, rule=adam())
    gradient = meta_gradient(episodic(learner, loss).loss, Plan(mode))(params, {}, regression_batch)
    assert all(torch.isfinite(g).all() for g in gradient.grads.values())
    assert not gradient.grads["layer0.weight"][:3].any()
    assert gradient.grads["layer0.weight"][3:].any()
    # and this is not for nothing: with plain square roots the whole gradient is NaN
    inner = maml_loop.Inner(0.05, 3, rule="adam")
    _, plain = maml_loop.meta_gradient(
        lambda p, task: maml_loop.task_loss(mlp_forward(torch.relu), F.mse_loss, p, inner, task),
        params,
        regression_batch.tasks(),
    )
    assert torch.isnan(plain["layer0.weight"]).any()


def test_safe_sqrt_is_the_square_root() -> None:
    v = torch.tensor([0.0, 1e-300, 0.25, 9.0], dtype=torch.float64, requires_grad=True)
    assert torch.equal(safe_sqrt(v), v.sqrt())
    safe_sqrt(v).sum().backward()
    assert v.grad is not None
    assert_close(v.grad, torch.tensor([0.0, 0.5e150, 1.0, 1 / 6], dtype=torch.float64))


# ---- which parameters move ----

MAKERS: dict[str, Callable[..., Learner]] = {
    "maml": maml,
    "anil": anil,
    "boil": boil,
    "meta-sgd": meta_sgd,
    "maml-lslr": maml_lslr,
}


@pytest.mark.parametrize("name", MAKERS)
def test_only_the_declared_parameters_move(
    name: str, smooth_net: Network, regression_batch: TaskBatch
) -> None:
    learner = MAKERS[name](smooth_net, get_loss("mse"), 0.1, 2)
    params, buffers = problems.drawn(smooth_net)
    params = learner.init(params)
    before = {n: p.clone() for n, p in params.items()}
    task = regression_batch.task(0)
    adapted = learner.adapt(params, buffers, task.x_support, task.y_support)
    assert_trees_equal(params, before)
    moved = {n for n in before if not torch.equal(adapted.params[n], before[n])}
    own = {n for n in before if not n.startswith("inner_lr.")}
    heads = set(smooth_net.head_names)
    assert moved == {"anil": heads, "boil": own - heads}.get(name, own)


def test_a_custom_head_is_what_anil_moves(regression_batch: TaskBatch) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.readout, self.body = nn.Linear(4, 1), nn.Linear(2, 4)  # the last layer need not come last

        def forward(self, x: Tensor) -> Tensor:
            return self.readout(torch.tanh(self.body(x)))

    network = from_module(Net().double(), head="readout")
    params, buffers = network.init(torch.Generator())
    task = regression_batch.task(0)
    adapted = anil(network, get_loss("mse"), 0.1, 2).adapt(params, buffers, task.x_support, task.y_support)
    moved = {n for n in params if not torch.equal(adapted.params[n], params[n])}
    assert moved == {"readout.weight", "readout.bias"}


# ---- numbers of steps ----


@pytest.mark.parametrize("name", MAKERS)
def test_no_steps_change_nothing(name: str, smooth_net: Network, regression_batch: TaskBatch) -> None:
    for options in ({}, {"truncate": 0}):
        learner = MAKERS[name](smooth_net, get_loss("mse"), 0.1, 0, **options)
        params = learner.init(problems.drawn(smooth_net)[0])
        task = regression_batch.task(0)
        adapted = learner.adapt(params, {}, task.x_support, task.y_support)
        assert_trees_equal(adapted.params, params)


def test_more_steps_continue_fewer(smooth_net: Network, regression_batch: TaskBatch) -> None:
    params, task, loss = problems.drawn(smooth_net)[0], regression_batch.task(0), get_loss("mse")
    two = maml(smooth_net, loss, 0.1, 2).adapt(params, {}, task.x_support, task.y_support)
    three = maml(smooth_net, loss, 0.1, 3).adapt(two.params, {}, task.x_support, task.y_support)
    five = maml(smooth_net, loss, 0.1, 5).adapt(params, {}, task.x_support, task.y_support)
    assert_trees_equal(three.params, five.params)


def test_learned_rates_last_beyond_the_trained_steps(
    smooth_net: Network, regression_batch: TaskBatch
) -> None:
    loss, task = get_loss("mse"), regression_batch.task(0)
    params = maml_lslr(smooth_net, loss, 0.1, 2).init(problems.drawn(smooth_net)[0])
    for name in list(params):
        if name.startswith("inner_lr."):
            assert params[name].shape == (2,)
            params[name] = torch.tensor([0.0, 0.07], dtype=torch.float64)
    ours = maml_lslr(smooth_net, loss, 0.1, 4).adapt(params, {}, task.x_support, task.y_support)
    plain = maml(smooth_net, loss, 0.07, 3).adapt(
        {n: p for n, p in params.items() if not n.startswith("inner_lr.")}, {}, task.x_support, task.y_support
    )
    assert_trees_close({n: ours.params[n] for n in plain.params}, plain.params)


def test_truncation_ends(smooth_net: Network, regression_batch: TaskBatch) -> None:
    loss, (params, _) = get_loss("mse"), problems.drawn(smooth_net)

    def grads(**options: object) -> Tree:
        learner = maml(smooth_net, loss, 0.1, 3, **options)  # type: ignore[arg-type]
        return meta_gradient(episodic(learner, loss).loss, Plan("vmap"))(params, {}, regression_batch).grads

    assert_trees_equal(grads(truncate=0), grads(first_order=True))
    assert_trees_equal(grads(truncate=3), grads())
    assert_trees_equal(grads(truncate=99), grads())
    gaps = [max(float((grads(truncate=k)[n] - g).abs().max()) for n, g in grads().items()) for k in range(4)]
    assert gaps[0] > gaps[1] > gaps[2] > gaps[3] == 0


def test_recomputed_steps_refuse_vmap(smooth_net: Network, regression_batch: TaskBatch) -> None:
    learner = maml(smooth_net, get_loss("mse"), 0.1, 2, checkpoint=True)
    with pytest.raises(UserError, match=r"^checkpoint=true needs execution=threads or execution=loop"):
        meta_gradient(episodic(learner, get_loss("mse")).loss, Plan("vmap"))(
            problems.drawn(smooth_net)[0], {}, regression_batch
        )


# ---- no second-order graph ----


def graph_size(root: Tensor) -> int:
    """How many nodes of autograd's graph hang on a tensor."""
    seen, open_nodes = set(), [root.grad_fn]
    while open_nodes:
        node = open_nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            open_nodes += [after for after, _ in node.next_functions]
    return len(seen)


def query_loss(learner: Learner, network: Network, task_batch: TaskBatch) -> Tensor:
    params = {n: p.requires_grad_() for n, p in learner.init(problems.drawn(network)[0]).items()}
    objective = episodic(learner, get_loss("mse"))
    assert objective.loss is not None
    with plain_autograd():
        return objective.loss(params, {}, task_batch.task(0))[0]


@pytest.mark.parametrize("name", ["maml", "anil", "boil"])
def test_first_order_builds_no_second_order_graph(
    name: str, smooth_net: Network, regression_batch: TaskBatch
) -> None:
    def size(steps: int, **options: object) -> int:
        learner = MAKERS[name](smooth_net, get_loss("mse"), 0.1, steps, **options)
        return graph_size(query_loss(learner, smooth_net, regression_batch))

    assert size(10, first_order=True) == size(1, first_order=True)
    assert size(10) > size(1)  # the count does see graphs
    assert size(10, truncate=2) == size(3, truncate=2)


def test_adapting_without_grad_builds_no_graph(smooth_net: Network, regression_batch: TaskBatch) -> None:
    params = {n: p.requires_grad_() for n, p in problems.drawn(smooth_net)[0].items()}
    task = regression_batch.task(0)
    for name, make in MAKERS.items():
        learner = make(smooth_net, get_loss("mse"), 0.1, 2)
        with torch.no_grad(), plain_autograd():
            adapted = learner.adapt(learner.init(params), {}, task.x_support, task.y_support)
            outputs, _ = learner.predict(adapted, task.x_query)
        assert outputs.grad_fn is None, name
        assert all(p.grad_fn is None for p in adapted.params.values()), name


# ---- the learner that does not learn ----


def test_the_non_adaptive_learner_ignores_labels(image_batch: TaskBatch) -> None:
    task = image_batch.task(0)
    for norm in ("none", "group", "transductive", "support", "running"):
        network = conv4(1, 16, 3, filters=4, norm=norm)
        params, buffers = problems.drawn(network)
        learner = non_adaptive(network)
        one, other = (
            learner.predict(learner.adapt(params, buffers, task.x_support, y), task.x_query)[0]
            for y in (task.y_support, task.y_support.flip(0))
        )
        assert torch.equal(one, other)
