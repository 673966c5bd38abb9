"""Compiled and capture meta-gradients, and machines without a C++ compiler."""

from __future__ import annotations

import getpass
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.types import Task
from innerloop.learners import episodic, maml
from innerloop.nets import mlp
from innerloop.testing.closeness import assert_close, assert_trees_close
from innerloop.training import Plan, choose_plan, meta_gradient
from innerloop.training.execution.gradients import capture
from innerloop.training.execution.probes import cpp_compiler
from oracles import problems

Tree = dict[str, Tensor]
W = {"w": torch.ones(1, dtype=torch.float64)}


def square(params: Tree, buffers: Tree, task: Task) -> tuple[Tensor, Tree]:
    return (params["w"] * task.x_query).square().sum(), buffers


def choose(**options: Any) -> Any:
    return choose_plan(W, {}, problems.regression(4), loss=square, execution="vmap", threads=1, **options)


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with nothing on its path."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)


@pytest.fixture
def own_inductor_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's cache takes code that was generated for other instructions: it cannot be compiled here."""
    kind = f"{getpass.getuser()}-{torch.backends.cpu.get_cpu_capability()}"
    monkeypatch.setenv(
        "TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir(), f"innerloop-inductor-{kind}"))
    )


@pytest.mark.compiler
def test_compiled_equals_eager(own_inductor_cache: None) -> None:
    network, loss = mlp(2, [6], 1), get_loss("mse")
    params, _ = problems.drawn(network)
    value = episodic(maml(network, loss, 0.1, 2), loss).loss
    run = meta_gradient(value, Plan("vmap", compile="full"))
    compiled = []
    for seed in (0, 1):  # the second batch runs what the first one compiled
        batch = problems.regression(seed=seed)
        expected = meta_gradient(value, Plan("loop"))(params, {}, batch)
        gradient = run(params, {}, batch)
        compiled.append(counters["stats"]["unique_graphs"])
        assert_close(gradient.losses, expected.losses)
        assert_trees_close(gradient.grads, expected.grads)
    assert compiled[0] == compiled[1] > 0


def test_captured_graphs_are_replayed_not_rerun() -> None:
    calls = []

    def loss(params: Tree, buffers: Tree, task: Task) -> tuple[Tensor, Tree]:
        calls.append(1)
        return square(params, buffers, task)

    run = meta_gradient(loss, Plan("vmap", compile="trace"))
    for scale in (1.0, 3.0):
        batch = problems.regression(4)
        batch = batch._replace(x_query=batch.x_query * scale)
        gradient = run({"w": scale * W["w"]}, {}, batch)
        assert_close(gradient.losses, scale**4 * problems.regression(4).x_query.square().sum((1, 2)))
    assert len(calls) == 1
    run(W, {}, problems.regression(3))  # another shape is another graph
    assert len(calls) == 2


def test_captured_graphs_tell_dtypes_and_structures_apart() -> None:
    double = capture(lambda tree: {name: 2 * value for name, value in tree.items()})
    assert double({"a": torch.ones(2)})["a"].dtype == torch.float32
    assert double({"a": torch.ones(2, dtype=torch.float64)})["a"].dtype == torch.float64
    assert list(double({"b": torch.ones(2)})) == ["b"]


# ---- choosing ----


def test_a_captured_graph_serves_inputs_wherever_they_begin_in_memory() -> None:
    traced: list[int] = []

    def fn(x: Tensor) -> Tensor:
        traced.append(1)
        return (
            x[:, 1:].T.unsqueeze(0)[0, 1:].flatten() * 2 + x.T.T.sum() + x.transpose(0, 1).exp()[1:].T[0, 0]
        )

    run, data = capture(fn), torch.arange(120.0).div(100).view(24, 5)
    parts = [data[i : i + 4] for i in range(0, 24, 4)]  # chunks of a batch
    found = [run(part) for part in parts]
    assert len(traced) == 1
    for part, value in zip(parts, found, strict=True):
        assert torch.equal(value, fn(part))
    square = torch.arange(16.0).view(4, 4)
    assert torch.equal(capture(lambda x: x.T + 1)(square.T), square + 1)


def test_short_runs_are_not_compiled_and_say_why() -> None:
    chosen = choose(steps=10, compile="auto")
    assert chosen.plan.compile == "off"
    assert any("too few to repay" in remark or "no C++ compiler" in remark for remark in chosen.remarks)


def test_off_is_off() -> None:
    chosen = choose(steps=10**9, compile="off")
    assert chosen.plan.compile == "off"
    assert chosen.remarks == []


def test_long_runs_without_a_compiler_are_captured_and_say_why(no_compiler: None) -> None:
    chosen = choose(steps=10**7, compile="auto")
    assert chosen.plan.compile in ("trace", "off")  # off if capturing was measured to bring nothing
    assert any("no C++ compiler was found" in remark for remark in chosen.remarks)
    assert any(label.endswith("trace") for label in chosen.milliseconds)


def test_asking_for_cpp_without_a_compiler_is_a_user_error(no_compiler: None) -> None:
    with pytest.raises(UserError, match=r"^compile=full needs a C\+\+ compiler"):
        choose(steps=10, compile="full")


def test_a_compiler_is_what_torch_would_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert cpp_compiler() is None
    usual, other = ("clang++", "g++") if sys.platform == "darwin" else ("g++", "clang++")
    for name in (usual, other):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert cpp_compiler() == str(tmp_path / usual)
    (tmp_path / usual).unlink()
    assert cpp_compiler() is None  # torch does not look for the other one
    monkeypatch.setenv("CXX", other)
    assert cpp_compiler() == str(tmp_path / other)
    monkeypatch.setenv("CXX", "nowhere++")
    assert cpp_compiler() is None


def test_compiling_is_not_used_where_it_cannot_be() -> None:
    chosen = choose_plan(
        W, {}, problems.regression(4), loss=square, steps=10, execution="loop", threads=1, compile="trace"
    )
    assert chosen.plan.compile == "off"
    assert any("compile=trace is for execution=vmap" in remark for remark in chosen.remarks)
