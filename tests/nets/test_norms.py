"""Norm policies: whose statistics normalise, in value and in second derivatives."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.types import TaskBatch
from innerloop.learners import anil, maml, non_adaptive
from innerloop.nets import NORM_POLICIES, apply, conv4, norms
from innerloop.nets.ops import reference
from innerloop.testing.closeness import ROUNDED, SUMMED, assert_close, assert_trees_close
from oracles import problems

Tree = dict[str, Tensor]
MAKERS = {
    "maml": lambda net: maml(net, get_loss("cross-entropy"), 0.1, 2),
    "anil": lambda net: anil(net, get_loss("cross-entropy"), 0.1, 2),
    "none": non_adaptive,
}


def pictures(n: int, channels: int = 4, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return 1 + 2 * torch.randn(n, channels, 5, 6, generator=draw, dtype=torch.float64)


# ---- the table of norms.py ----


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("policy", NORM_POLICIES)
def test_the_table_as_a_function(policy: str, training: bool) -> None:
    support = norms.statistics_for(policy, "support", training)
    query = norms.statistics_for(policy, "query", training)
    expected = {
        "support": ("batch", "stored"),
        "running": ("batch", "batch") if training else ("stored", "stored"),
    }.get(policy, ("batch", "batch"))
    assert (support, query) == expected


MIXES_QUERIES = {  # policy: (in training, in testing)
    "transductive": (True, True),
    "support": (False, False),
    "running": (True, False),
    "group": (False, False),
    "none": (False, False),
}


@pytest.mark.parametrize("training", [True, False], ids=["training", "testing"])
@pytest.mark.parametrize("method", MAKERS)
@pytest.mark.parametrize("policy", NORM_POLICIES)
def test_does_a_prediction_depend_on_the_other_queries(
    policy: str, method: str, training: bool, image_batch: TaskBatch
) -> None:
    network = conv4(1, 16, 3, filters=4, norm=policy)
    params, buffers = problems.drawn(network)
    task, learner = image_batch.task(0), MAKERS[method](network)
    adapted = learner.adapt(params, buffers, task.x_support, task.y_support, training=training)
    together, _ = learner.predict(adapted, task.x_query, training=training)
    others = torch.cat([task.x_query[:1], 3 * task.x_query[1:] + 1])
    beside, _ = learner.predict(adapted, others, training=training)
    same = torch.allclose(together[0], beside[0], rtol=SUMMED, atol=ROUNDED)
    assert same == (not MIXES_QUERIES[policy][0 if training else 1])


@pytest.mark.parametrize("method", MAKERS)
def test_support_policy_normalises_queries_by_the_support_set(method: str, image_batch: TaskBatch) -> None:
    network = conv4(1, 16, 3, filters=4, norm="support")
    params, buffers = problems.drawn(network)
    task, learner = image_batch.task(0), MAKERS[method](network)
    adapted = learner.adapt(params, buffers, task.x_support, task.y_support)
    # asked about the support set itself, its statistics are also the batch's
    by_stored, _ = learner.predict(adapted, task.x_support)
    by_batch, _ = apply(network, adapted.params, adapted.buffers, task.x_support, "batch")
    assert_close(by_stored, by_batch)
    # and what earlier tasks left in the buffers has no influence
    other = {n: b + 1 for n, b in buffers.items()}
    again = learner.adapt(params, other, task.x_support, task.y_support)
    assert torch.equal(learner.predict(again, task.x_query)[0], learner.predict(adapted, task.x_query)[0])


@pytest.mark.parametrize("policy", NORM_POLICIES)
def test_policies_own_what_they_need(policy: str) -> None:
    params, buffers = norms.init_norm("n", 6, policy)
    assert set(params) == (set() if policy == "none" else {"n.weight", "n.bias"})
    assert set(buffers) == ({"n.mean", "n.var"} if policy in ("support", "running") else set())


def test_unknown_policies_are_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'transductive'"):
        conv4(1, 28, 5, norm="transductiv")


# ---- values, against torch's own layers ----


@pytest.mark.parametrize("policy", ["transductive", "support", "running"])
def test_batch_statistics_equal_batch_norm(policy: str) -> None:
    x, (weight, bias) = pictures(7), torch.randn(2, 4, generator=torch.Generator().manual_seed(1)).double()
    _, buffers = norms.init_norm("n", 4, policy)
    buffers = {n: b.double() for n, b in buffers.items()}
    y, _ = norms.norm("n", policy, {"n.weight": weight, "n.bias": bias}, buffers, x, "batch")
    assert_close(y, F.batch_norm(x, None, None, weight, bias, training=True))


@pytest.mark.parametrize("channels", [1, 3, 4, 6, 16, 24, 34, 48])
def test_group_policy_equals_group_norm(channels: int) -> None:
    groups = norms.groups_for(channels)
    assert channels % groups == 0
    assert groups <= 16
    layer = nn.GroupNorm(groups, channels).double()
    with torch.no_grad():
        layer.weight.copy_(torch.linspace(0.5, 2, channels))
        layer.bias.copy_(torch.linspace(-1, 1, channels))
    x = pictures(3, channels)
    params = {"n.weight": layer.weight.detach(), "n.bias": layer.bias.detach()}
    y, changed = norms.norm("n", "group", params, {}, x, "batch")
    assert_close(y, layer(x).detach())
    assert changed == {}


def test_running_statistics_equal_those_of_batch_norm() -> None:
    layer = nn.BatchNorm2d(4).double().train()
    params, buffers = norms.init_norm("n", 4, "running")
    params, buffers = ({n: t.double() for n, t in tree.items()} for tree in (params, buffers))
    for seed in range(6):
        x = pictures(5, seed=seed)
        expected = layer(x).detach()
        y, buffers = norms.norm("n", "running", params, buffers, x, "batch")
        assert_close(y, expected)
    assert layer.running_mean is not None
    assert layer.running_var is not None
    assert_trees_close(buffers, {"n.mean": layer.running_mean, "n.var": layer.running_var})
    x = pictures(5, seed=99)
    y, changed = norms.norm("n", "running", params, buffers, x, "stored")
    assert_close(y, layer.eval()(x).detach())
    assert changed == {}


def test_running_statistics_of_a_whole_network(image_batch: TaskBatch) -> None:
    network = conv4(1, 16, 3, filters=4, norm="running")
    params, buffers = problems.drawn(network)
    layers = [nn.BatchNorm2d(4).double().train() for _ in range(4)]
    for i in range(3):
        x = image_batch.task(i % 2).x_query
        _, buffers = network.features(params, buffers, x, "batch")
        for k, layer in enumerate(layers):
            with torch.no_grad():
                x = F.conv2d(x, params[f"conv{k}.weight"], params[f"conv{k}.bias"], padding=1)
                layer.weight.copy_(params[f"norm{k}.weight"])
                layer.bias.copy_(params[f"norm{k}.bias"])
                x = F.max_pool2d(F.relu(layer(x)), 2)
    for k, layer in enumerate(layers):
        assert layer.running_mean is not None
        assert layer.running_var is not None
        assert_close(buffers[f"norm{k}.mean"], layer.running_mean)
        assert_close(buffers[f"norm{k}.var"], layer.running_var)


def test_running_statistics_carry_no_graph() -> None:
    params, buffers = norms.init_norm("n", 4, "running")
    x = pictures(3).float().requires_grad_()
    _, changed = norms.norm("n", "running", params, buffers, x, "batch")
    assert all(b.grad_fn is None for b in changed.values())
    # while those of the support set are differentiated through
    _, changed = norms.norm("n", "support", params, buffers, x, "batch")
    assert all(b.grad_fn is not None for b in changed.values())


# ---- second derivatives under vmap ----


def second_order(normalise: Callable[[Tensor, Tensor, Tensor], Tensor]) -> tuple[Tree, Tree]:
    """A MAML gradient through a normalisation layer whose scale adapts too, under vmap and in a loop."""
    draw = torch.Generator().manual_seed(3)
    x, target = torch.randn(2, 4, 6, 3, 2, 2, generator=draw, dtype=torch.float64)  # tasks, samples, channels
    mixing, affine = torch.randn(5, 3, generator=draw, dtype=torch.float64).split([3, 2])
    params = {"mixing": mixing, "weight": affine[0], "bias": affine[1]}

    def task(params: Tree, x: Tensor, target: Tensor) -> Tensor:
        def inner(p: Tree) -> Tensor:
            y = normalise(torch.einsum("oc,nchw->nohw", p["mixing"], x), p["weight"], p["bias"])
            return (y - target).square().mean()

        grads = torch.func.grad(inner)(params)
        return inner({name: p - 0.5 * grads[name] for name, p in params.items()})

    def mean(params: Tree) -> Tensor:
        return torch.func.vmap(task, (None, 0, 0))(params, x, target).mean()

    leaves = {name: p.clone().requires_grad_() for name, p in params.items()}
    total = torch.stack([task(leaves, x[i], target[i]) for i in range(4)]).mean()
    in_loop = torch.autograd.grad(total, list(leaves.values()))
    return torch.func.grad(mean)(params), dict(zip(leaves, in_loop, strict=True))


def ours(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return reference.batch_norm(x, weight, bias, 1e-5)[0]


def torchs(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.batch_norm(x, None, None, weight, bias, training=True)


def test_our_batch_norm_can_be_differentiated_twice_under_vmap() -> None:
    under_vmap, in_loop = second_order(ours)
    assert_trees_close(under_vmap, in_loop)
    assert_trees_close(in_loop, second_order(torchs)[1])  # torch's is right in a loop


def test_torchs_batch_norm_is_wrong_under_vmap() -> None:
    """The reason why ours exists. If this fails, torch was mended: use ``F.batch_norm`` and measure again."""
    under_vmap, in_loop = (tree["mixing"] for tree in second_order(torchs))
    assert (under_vmap - in_loop).abs().max() > 0.1 * in_loop.abs().max()
