"""Native layers against torch's: features, first and second derivatives, in float64, for every option."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import innerloop as il
from innerloop.core.autodiff import plain_autograd
from innerloop.core.losses import is_classification, smoothed
from innerloop.core.types import Task, stack_tasks
from innerloop.learners.base import Learner
from innerloop.learners.objectives.episodic import episodic
from innerloop.nets.ops import engine
from innerloop.nets.ops.engine import Blocks
from innerloop.testing.closeness import (
    CHAINED,
    ROUNDED,
    SINGLE_CHAINED,
    assert_trees_close,
    assert_trees_equal,
)
from innerloop.training.execution.auto import choose_plan
from innerloop.training.execution.gradients import meta_gradient
from innerloop.training.execution.mapping import native_layers
from innerloop.training.execution.plan import Plan

pytestmark = pytest.mark.compiler


@pytest.fixture(autouse=True)
def _native() -> None:
    native_layers(Plan(compile="native"))


def by_torch(blocks: Blocks) -> Callable[..., tuple[Tensor, ...]]:
    """The blocks by torch's layers: slow and obvious."""
    wide = (1, -1, 1, 1)

    def run(x: Tensor, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        split = 2 * blocks.depth if blocks.norm == "given" else 0
        given, params, seen = tensors[:split], tensors[split:], []
        for i in range(blocks.depth):
            weight, bias, scale, shift = params[4 * i : 4 * i + 4]
            assert weight is not None
            x = F.conv2d(x, weight, bias, blocks.stride, blocks.kernel // 2)
            if blocks.norm == "group":
                x = F.group_norm(x, blocks.groups, eps=blocks.eps)
            elif blocks.norm != "none":
                own = [x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)]
                mean, var = given[2 * i : 2 * i + 2] if given else own
                assert mean is not None
                assert var is not None
                seen += own
                x = (x - mean.view(wide)) * (var.view(wide) + blocks.eps).rsqrt()
            if scale is not None and shift is not None:
                x = x * scale.view(wide) + shift.view(wide)
            x = F.relu(x)
            x = F.max_pool2d(x, 2) if blocks.pool else x
        return x.flatten(1), *(seen if blocks.norm == "batch" else [])

    return run


class Problem:
    """Random pictures and parameters for some blocks."""

    def __init__(self, blocks: Blocks, pictures: int, bias: bool) -> None:
        self.draw, self.blocks = torch.Generator().manual_seed(7), blocks
        self.x = self.normal(pictures, blocks.channels, blocks.height, blocks.width)
        self.params: list[Tensor | None] = []
        for i in range(blocks.depth):
            inputs, k = blocks.filters if i else blocks.channels, blocks.kernel
            self.params.append(0.3 * self.normal(blocks.filters, inputs, k, k))
            self.params.append(self.normal(blocks.filters) if bias else None)
            scale = [1 + 0.3 * self.normal(blocks.filters), 0.3 * self.normal(blocks.filters)]
            self.params += [None, None] if blocks.norm == "none" else scale
        count = 2 * blocks.depth if blocks.norm == "given" else 0
        self.given = [0.5 + self.normal(blocks.filters).abs() for _ in range(count)]
        self.head = 0.3 * self.normal(blocks.outputs, 3)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.draw, dtype=torch.float64)

    def after_two_steps(self, features: Callable[..., tuple[Tensor, ...]]) -> list[Tensor]:
        """Gradients of a loss, after two steps of descent, in everything that it depends on."""
        first = [t.clone().requires_grad_() for t in self.params if t is not None]
        given = [t.clone().requires_grad_() for t in self.given]
        labels = torch.arange(len(self.x)) % 3

        def outputs(moving: Sequence[Tensor], given: Sequence[Tensor]) -> tuple[Tensor, ...]:
            values = iter(moving)
            return features(self.x, *given, *(None if t is None else next(values) for t in self.params))

        now: Sequence[Tensor] = first
        for _ in range(2):
            loss = F.cross_entropy(outputs(now, [t.detach() for t in given])[0] @ self.head, labels)
            steps = torch.autograd.grad(loss, now, create_graph=True, materialize_grads=True)
            now = [p - 0.3 * step for p, step in zip(now, steps, strict=True)]
        last, *seen = outputs(now, given)
        total = F.cross_entropy(last @ self.head, labels)
        for statistic in seen:  # what the policy `support` hands on to the queries
            total = total + 0.1 * statistic.square().sum()
        return list(torch.autograd.grad(total, [*first, *given], materialize_grads=True))


def native(blocks: Blocks) -> Callable[..., tuple[Tensor, ...]]:
    def run(x: Tensor, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        split = 2 * blocks.depth if blocks.norm == "given" else 0
        given = [t for t in tensors[:split] if t is not None]
        out, seen = engine.features(blocks, by_torch(blocks), x, given, tensors[split:])
        return out, *seen

    return run


SHAPES = [
    (16, 16, 3, 1, True),
    (19, 13, 3, 1, True),
    (19, 13, 5, 2, False),
    (9, 8, 3, 2, False),
    (1, 1, 3, 1, False),
]


@pytest.mark.parametrize("norm", engine.NORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.one_in(2)
def test_second_derivatives_are_torchs(norm: str, shape: tuple[int, int, int, int, bool], bias: bool) -> None:
    height, width, kernel, stride, pool = shape
    blocks = Blocks(3 if height > 9 else 1, 2, height, width, 6, kernel, stride, pool, norm, 3, 1e-5)
    problem = Problem(blocks, 5, bias)
    ours, theirs = (problem.after_two_steps(side(blocks)) for side in (native, by_torch))
    for mine, its in zip(ours, theirs, strict=True):
        assert (mine - its).abs().max() <= ROUNDED * max(1.0, float(its.abs().max()))


def test_gradients_in_pictures_and_third_derivatives_are_autograds() -> None:
    blocks = Blocks(2, 2, 9, 9, 4, 3, 1, True, "batch", 1, 1e-5)
    problem, found = Problem(blocks, 3, True), []
    for side in (native, by_torch):
        x = problem.x.clone().requires_grad_()
        params = [None if t is None else t.clone().requires_grad_() for t in problem.params]
        value: Tensor = side(blocks)(x, *params)[0].pow(3).sum()
        for _ in range(3):
            (grad,) = torch.autograd.grad(value, [params[0]], create_graph=True)  # type: ignore[list-item]
            value = grad.pow(3).sum()
        found.append(torch.autograd.grad(value, [x, params[0]]))  # type: ignore[list-item]
    for mine, its in zip(*found, strict=True):
        assert torch.allclose(mine, its, rtol=CHAINED, atol=CHAINED * float(its.abs().max()))


def test_several_gradients_of_one_pass_wait_each_for_its_turn() -> None:
    blocks = Blocks(2, 1, 8, 8, 3, 3, 1, True, "batch", 1, 1e-5)
    problem, found = Problem(blocks, 2, False), []
    for side in (native, by_torch):
        weight = problem.params[0].clone().requires_grad_()  # type: ignore[union-attr]
        features = side(blocks)(problem.x, weight, *problem.params[1:])[0]
        rows = [
            torch.autograd.grad(features[:, i].square().sum(), weight, create_graph=True)[0]
            for i in range(engine.WAITING + 2)
        ]
        seen = []
        for row in (rows[0], sum(rows[1:], rows[0]), rows[-1]):  # the graph is kept, and gone through again
            seen += torch.autograd.grad(row.square().sum(), weight, retain_graph=True)
        found.append(seen)
    for mine, its in zip(*found, strict=True):
        assert torch.allclose(mine, its, rtol=CHAINED, atol=CHAINED * float(its.abs().max()))


LEARNERS: dict[str, Callable[[Any, Any], Learner]] = {
    "maml": lambda net, loss: il.maml(net, loss, 0.05, 3),
    "first order": lambda net, loss: il.maml(net, loss, 0.05, 3, first_order=True),
    "truncated": lambda net, loss: il.maml(net, loss, 0.05, 3, truncate=1),
    "recomputed": lambda net, loss: il.maml(net, loss, 0.05, 3, checkpoint=True),
    "anil": lambda net, loss: il.anil(net, loss, 0.05, 3),
    "boil": lambda net, loss: il.boil(net, loss, 0.05, 3),
    "meta-sgd": lambda net, loss: il.meta_sgd(net, loss, 0.05, 3),
    "lslr": lambda net, loss: il.maml_lslr(net, loss, 0.05, 3),
    "imaml": lambda net, loss: il.imaml(net, loss, 0.05, 3, penalty=2.0),
    "protonet": lambda net, loss: il.protonet(net, 3),
    "r2d2": lambda net, loss: il.r2d2(net, 3),
}


@pytest.mark.parametrize("norm", ["transductive", "support", "running", "group", "none"])
@pytest.mark.parametrize("pooling", ["max", "stride"])
@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.one_in(3)
def test_learners_do_not_see_it(learner: str, pooling: str, norm: str) -> None:
    net = il.conv4(2, 21, 3, filters=6, pooling=pooling, norm=norm)
    params, buffers = net.init(torch.Generator().manual_seed(0))
    draw, loss = torch.Generator().manual_seed(1), il.get_loss("cross-entropy")
    x, queries = (torch.randn(n, 2, 21, 21, generator=draw, dtype=torch.float64) for n in (6, 9))
    found = []
    for mode in (False, True):
        made = LEARNERS[learner](net, loss)
        first = made.init(params) if made.init else params
        with plain_autograd(native=mode):
            leaves = {name: value.double().requires_grad_() for name, value in first.items()}
            state = {name: value.double() for name, value in buffers.items()}
            adapted = made.adapt(leaves, state, x, torch.arange(6) % 3, True)
            outputs, after = made.predict(adapted, queries, True)
            value = loss.value(outputs, torch.arange(9) % 3)
            grads = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)
        found.append([value.detach(), *grads, *(buffer.detach() for buffer in after.values())])
    for mine, its in zip(*found, strict=True):
        assert (mine - its).abs().max() <= ROUNDED * max(1.0, float(its.abs().max()))


@pytest.mark.parametrize("name", ["mse", "half-mse", "half-sse", "cross-entropy-sum", "smoothed"])
def test_every_convention_of_the_loss(name: str) -> None:
    net = il.conv4(1, 16, 3, filters=5)
    params, buffers = net.init(torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(6, 1, 16, 16, generator=draw, dtype=torch.float64)
    loss = smoothed(il.get_loss("cross-entropy"), 0.2) if name == "smoothed" else il.get_loss(name)
    labels = torch.arange(6) % 3
    y = (
        labels
        if is_classification(loss)
        else F.one_hot(labels, 3).double() + torch.randn(6, 3, generator=draw)
    )
    learner, found = il.maml(net, loss, 0.02, 2), []
    for mode in (False, True):
        with plain_autograd(native=mode):
            leaves = {name: value.double().requires_grad_() for name, value in params.items()}
            adapted = learner.adapt(leaves, buffers, x, y, True)
            value = loss.value(learner.predict(adapted, x, True)[0], y)
            found.append(torch.autograd.grad(value, list(leaves.values()), materialize_grads=True))
    for mine, its in zip(*found, strict=True):
        assert (mine - its).abs().max() <= ROUNDED * max(1.0, float(its.abs().max()))


def test_a_long_run_measures_it() -> None:
    net, loss = il.conv4(1, 16, 2, filters=4), il.get_loss("cross-entropy")
    params, buffers = net.init(torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(1)
    pictures, labels = torch.randn(2, 4, 1, 16, 16, generator=draw), torch.arange(4) % 2
    batch = stack_tasks([Task(pictures[0], labels, pictures[1], labels, torch.tensor(i)) for i in range(2)])
    objective = episodic(il.maml(net, loss, 0.1, 2), loss)
    for steps, measured in ((1, False), (10**6, True)):
        found = choose_plan(params, buffers, batch, loss=objective.loss, steps=steps, threads=2, native=True)
        assert ("threads@2+native" in found.milliseconds) == measured
        least = min(found.milliseconds.values())
        assert found.milliseconds[found.plan.label] == least or found.plan.intra_op == 1


def test_threads_change_no_bit() -> None:
    net, loss = il.conv4(1, 16, 2, filters=4), il.get_loss("cross-entropy")
    params, buffers = net.init(torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(1)

    def task(i: int) -> Task:
        support, query = (torch.randn(4, 1, 16, 16, generator=draw) for _ in range(2))
        return Task(support, torch.arange(4) % 2, query, torch.arange(4) % 2, torch.tensor(i))

    batch = stack_tasks([task(i) for i in range(5)])
    objective = episodic(il.maml(net, loss, 0.1, 2), loss)
    runs = [
        meta_gradient(objective.loss, plan)(params, buffers, batch)
        for plan in (Plan("loop", compile="native"), Plan("threads", 3, compile="native"))
    ]
    assert_trees_equal(runs[0].grads, runs[1].grads)
    off = meta_gradient(objective.loss, Plan("loop"))(params, buffers, batch)
    assert_trees_close(runs[0].grads, off.grads, (SINGLE_CHAINED, SINGLE_CHAINED))


def test_it_is_not_for_processes() -> None:
    with pytest.raises(il.UserError, match="compile='native' is not for mode='processes'"):
        Plan("processes", compile="native")


def test_only_networks_that_have_it_train_on_it(call: Any, own_folder: Any) -> None:
    for words, message in (
        (
            ["omniglot-maml", "data.name=glyphs", "model.kind=resnet12"],
            "run.compile=native is for model.kind=conv4, and mlp",
        ),
        (["sine-maml", "model.activation=tanh"], "piecewise linear activation"),
        (["sine-maml", "run.execution=threads"], "run.compile=native needs run.execution=vmap"),
        (["omniglot-maml", "data.name=glyphs", "run.execution=vmap"], "run.execution=threads or loop"),
        (["sine-maml", "inner.checkpoint=true"], "leave inner.checkpoint=true out"),
    ):
        code, _, error = call("train", *words, "run.compile=native", "outer.steps=1", "-q")
        assert code == 2
        assert message in error
    assert not list(own_folder.iterdir())


def test_a_run_trains_on_it(call: Any, own_folder: Any) -> None:
    few = ["data.name=glyphs", "tasks.ways=3", "eval.ways=3", "outer.batch=2", "model.filters=4"]
    few += ["eval.episodes=2", "eval.baselines=false", "outer.steps=3", "-q", "--json"]
    found = {}
    for way in ("native", "off"):
        words = [*few, "run.threads=2", "run.execution=threads", f"run.compile={way}"]
        code, answer, _ = call("train", "omniglot-maml", *words)
        assert code == 0
        found[way] = json.loads(answer)
    assert found["native"]["plan"]["compile"] == "native"
    means = [found[way]["metrics"]["accuracy"] for way in found]
    assert means[0] == pytest.approx(means[1], abs=SINGLE_CHAINED)
