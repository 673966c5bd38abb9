"""Native inner steps of fully connected networks against torch's under ``vmap``, for every option."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

import innerloop as il
from innerloop.core.types import Task, TaskBatch, stack_tasks
from innerloop.learners.base import Learner
from innerloop.learners.objectives.episodic import episodic
from innerloop.nets.ops.engine import calls
from innerloop.testing.closeness import ROUNDED, SINGLE_CHAINED, assert_trees_close, assert_trees_equal
from innerloop.training.execution.auto import choose_plan
from innerloop.training.execution.gradients import meta_gradient
from innerloop.training.execution.plan import Plan, torch_threads

pytestmark = pytest.mark.compiler
DOUBLE = torch.float64
MAML: dict[str, Callable[[Any, Any], Learner]] = {
    "maml": lambda net, loss: il.maml(net, loss, 0.05, 4),
    "first order": lambda net, loss: il.maml(net, loss, 0.05, 3, first_order=True),
    "truncated": lambda net, loss: il.maml(net, loss, 0.05, 3, truncate=1),
    "no steps": lambda net, loss: il.maml(net, loss, 0.05, 0),
}
OTHERS: dict[str, Callable[[Any, Any], Learner]] = {
    "anil": lambda net, loss: il.anil(net, loss, 0.05, 3),
    "boil": lambda net, loss: il.boil(net, loss, 0.05, 3),
    "meta-sgd": lambda net, loss: il.meta_sgd(net, loss, 0.05, 3),
    "lslr": lambda net, loss: il.maml_lslr(net, loss, 0.05, 3),
    "imaml": lambda net, loss: il.imaml(net, loss, 0.05, 3, penalty=2.0),
}
LOSSES = ["mse", "half-mse", "half-sse", "cross-entropy", "cross-entropy-sum"]


def problem(
    tasks: int,
    hidden: list[int],
    loss: str,
    activation: str = "relu",
    shots: int = 7,
    dtype: Any = torch.float64,
) -> tuple[il.Network, il.core.Params, TaskBatch]:
    """A network of three inputs and four outputs, and tasks of noise."""
    draw = torch.Generator().manual_seed(3)
    net = il.mlp(3, hidden, 4, activation, bias_var=0.1)
    params = {name: value.to(dtype) for name, value in net.init(draw)[0].items()}

    def targets(n: int) -> torch.Tensor:
        if loss.startswith("cross"):
            return torch.arange(n) % 4
        return torch.randn(n, 4, generator=draw, dtype=dtype)

    def task(number: int) -> Task:
        x, queries = (torch.randn(n, 3, generator=draw, dtype=dtype) for n in (shots, 5))
        return Task(x, targets(shots), queries, targets(5), torch.tensor(number))

    return net, params, stack_tasks([task(i) for i in range(tasks)])


def gradients(learner: Learner, loss: str, params: Any, batch: Any, compile: Any, threads: int = 1) -> Any:
    plan = Plan("vmap", threads, compile=compile)
    objective = episodic(learner, il.get_loss(loss))
    with torch_threads(plan):
        found = meta_gradient(objective.loss, plan)(params, {}, batch)
    return {**found.grads, "losses": found.losses}


def assert_native_is_torchs(
    learner: Learner, loss: str, params: Any, batch: Any, *, used: bool = True
) -> None:
    before = calls()
    native = gradients(learner, loss, params, batch, "native")
    assert (calls() > before) == used
    torchs = gradients(learner, loss, params, batch, "off")
    for name, value in torchs.items():
        assert (native[name] - value).abs().max() <= ROUNDED * max(1.0, float(value.abs().max())), name


@pytest.mark.parametrize("learner", MAML)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "linear"])
def test_meta_gradients_are_torchs(learner: str, loss: str, activation: str) -> None:
    net, params, batch = problem(9, [6, 5], loss, activation)
    assert_native_is_torchs(MAML[learner](net, il.get_loss(loss)), loss, params, batch)


@pytest.mark.parametrize("tasks", [1, 8, 33])
@pytest.mark.parametrize("hidden", [[], [1], [13, 4, 9]])
@pytest.mark.parametrize("shots", [1, 12])
def test_any_size(tasks: int, hidden: list[int], shots: int) -> None:
    net, params, batch = problem(tasks, hidden, "mse", shots=shots)
    assert_native_is_torchs(MAML["maml"](net, il.get_loss("mse")), "mse", params, batch)


@pytest.mark.parametrize("learner", OTHERS)
@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "linear"])
def test_other_learners_take_features_alone(learner: str, activation: str) -> None:
    net, params, batch = problem(17, [6, 3], "mse", activation)
    made = OTHERS[learner](net, il.get_loss("mse"))
    first = made.init(params) if made.init else params
    # iMAML's outer gradient is a derivative of its own
    assert_native_is_torchs(made, "mse", first, batch, used=learner != "imaml")


def test_tanh_and_the_ntk_parametrisation_have_none() -> None:
    assert il.mlp(1, [4], 1, "tanh").descend is None
    assert il.mlp(1, [4], 1, parametrisation="ntk").descend is None


def test_threads_change_no_bit() -> None:
    net, params, batch = problem(40, [8], "mse", dtype=torch.float32)
    one, three = (
        gradients(MAML["maml"](net, il.get_loss("mse")), "mse", params, batch, "native", n) for n in (1, 3)
    )
    assert_trees_equal(one, three)
    off = gradients(MAML["maml"](net, il.get_loss("mse")), "mse", params, batch, "off")
    assert_trees_close(one, off, (SINGLE_CHAINED, SINGLE_CHAINED))


def test_a_long_run_takes_it_where_it_is_fastest() -> None:
    for activation, used in (("relu", True), ("tanh", False)):
        net, params, batch = problem(8, [20, 20], "mse", activation, dtype=torch.float32)
        learner = MAML["maml"](net, il.get_loss("mse"))
        loss = episodic(learner, il.get_loss("mse")).loss
        found = choose_plan(
            params, {}, batch, loss=loss, steps=10**4, execution="vmap", threads=1, native=True
        )
        assert ("vmap@1+native" in found.milliseconds) == used
    asked = choose_plan(params, {}, batch, loss=loss, steps=5, compile="native", threads=1, native=True)
    assert asked.plan.compile == "native"
    assert any("have no native code" in remark for remark in asked.remarks)


def test_a_run_trains_on_it_and_goes_on(call: Any, own_folder: Any) -> None:
    few = ["outer.batch=4", "eval.episodes=20", "-q", "--json", "run.threads=1"]
    found = {}
    for way in ("native", "off"):
        words = [*few, "outer.steps=20", "run.execution=vmap", f"run.compile={way}"]
        code, answer, error = call("train", "sine-maml", *words)
        assert code == 0, error
        found[way] = json.loads(answer)
    assert found["native"]["plan"]["compile"] == "native"
    errors = [found[way]["metrics"]["mse"] for way in found]
    assert errors[0] == pytest.approx(errors[1], rel=SINGLE_CHAINED)
