"""Every way to run a meta-gradient gives the same numbers; ``auto`` measures and says what it chose."""

from __future__ import annotations

import gc
import multiprocessing
import pickle
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from innerloop.core.child_processes import start_method
from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.resources import available_cores
from innerloop.core.trees import mean_over_tasks
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
)
from innerloop.nets import NORM_POLICIES, Network, conv4, from_module, mlp
from innerloop.testing.closeness import assert_close, assert_trees_close, assert_trees_equal
from innerloop.training import Gradient, Plan, choose_plan, map_tasks, meta_gradient
from innerloop.training.execution import auto, timing
from innerloop.training.execution.plan import torch_threads
from oracles import problems
from oracles.patience import PATIENCE

Tree = dict[str, Tensor]

PLANS = {
    "vmap": Plan("vmap"),
    "threads": Plan("threads", 2),
    "chunks": Plan("vmap", chunk=2),  # batches of three: the last chunk is smaller
}
TRACE = {"trace": Plan("vmap", compile="trace")}  # seconds per capture on image networks
LEARNERS: dict[str, Callable[..., Learner]] = {
    "maml": maml,
    "fomaml": lambda *a: maml(*a, first_order=True),
    "truncated": lambda *a: maml(*a, truncate=1),
    "momentum": lambda *a: maml(*a, rule=momentum()),
    "adam": lambda *a: maml(*a, rule=adam()),
    "anil": anil,
    "anil-truncated": lambda *a: anil(*a, truncate=1, rule=adam()),
    "boil": boil,
    "meta-sgd": meta_sgd,
    "lslr": maml_lslr,
}


def check_plans(
    objective: Objective, params: Tree, buffers: Tree, batch: TaskBatch, plans: dict[str, Plan] = PLANS
) -> None:
    """The plain loop against everything else."""
    expected = meta_gradient(objective.loss, Plan("loop"))(params, buffers, batch)
    assert any(g.any() for g in expected.grads.values())
    for name, plan in plans.items():
        gradient = meta_gradient(objective.loss, plan)(params, buffers, batch)
        try:
            assert_close(gradient.losses, expected.losses)
            assert_trees_close(gradient.grads, expected.grads)
            assert_trees_close(gradient.buffers, expected.buffers)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.one_in(3)
def test_all_modes_agree_on_mlps(name: str) -> None:
    network, loss = mlp(2, [6], 1), get_loss("mse")
    learner = LEARNERS[name](network, loss, 0.1, 2)
    params = problems.shaken(learner.init(problems.drawn(network)[0]))
    check_plans(episodic(learner, loss), params, {}, problems.regression(), {**PLANS, **TRACE})


def test_captured_chunks_agree() -> None:
    network, loss = mlp(2, [6], 1), get_loss("mse")
    objective = episodic(maml(network, loss, 0.1, 1), loss)
    plans = {"traced-chunks": Plan("vmap", chunk=2, compile="trace")}
    check_plans(objective, problems.drawn(network)[0], {}, problems.regression(), plans)


@pytest.mark.parametrize("pooling", ["max", "stride"])
@pytest.mark.parametrize("norm", NORM_POLICIES)
@pytest.mark.parametrize("name", ["maml", "fomaml", "anil", "boil", "meta-sgd"])
@pytest.mark.one_in(3)
def test_all_modes_agree_on_conv4(name: str, norm: str, pooling: str) -> None:
    network, loss = conv4(1, 16, 3, filters=3, pooling=pooling, norm=norm), get_loss("cross-entropy")
    learner = LEARNERS[name](network, loss, 0.1, 2)
    params, buffers = problems.drawn(network)
    check_plans(episodic(learner, loss), learner.init(params), buffers, problems.images(3))


@pytest.mark.parametrize(
    ("norm", "pooling"),
    [
        ("transductive", "max"),
        pytest.param("support", "stride", marks=pytest.mark.slow),
        pytest.param("running", "stride", marks=pytest.mark.slow),
        pytest.param("group", "stride", marks=pytest.mark.slow),
    ],
)
def test_captured_conv4_agrees(norm: str, pooling: str) -> None:
    network, loss = conv4(1, 16, 3, filters=2, pooling=pooling, norm=norm), get_loss("cross-entropy")
    params, buffers = problems.drawn(network)
    check_plans(episodic(maml(network, loss, 0.1, 1), loss), params, buffers, problems.images(3), TRACE)


@pytest.mark.parametrize("norm", ["running", "support"])
def test_all_modes_agree_without_an_inner_loop(norm: str) -> None:
    network, loss, batch = (
        conv4(1, 16, 3, filters=3, norm=norm),
        get_loss("cross-entropy"),
        problems.images(3),
    )
    params, buffers = problems.drawn(network)
    check_plans(erm(network, loss), params, buffers, batch)
    heads = multitask(network, loss, 7)
    check_plans(heads, heads.init(params, torch.Generator().manual_seed(0)), buffers, batch)


def test_all_modes_agree_on_modules() -> None:
    made = nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=4), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3)
    )
    for norm in NORM_POLICIES:
        network, loss = from_module(made.double(), norm=norm), get_loss("cross-entropy")
        params, buffers = problems.drawn(network)
        check_plans(episodic(maml(network, loss, 0.1, 2), loss), params, buffers, problems.images(3))


def test_buffers_are_averaged_over_tasks() -> None:
    network, loss, batch = (
        conv4(1, 16, 3, filters=3, norm="running"),
        get_loss("cross-entropy"),
        problems.images(3),
    )
    params, buffers = problems.drawn(network)
    objective = erm(network, loss)
    assert objective.loss is not None
    each = [objective.loss(params, buffers, task)[1] for task in batch.tasks()]
    gradient = meta_gradient(objective.loss, Plan("vmap"))(params, buffers, batch)
    assert_trees_close(gradient.buffers, mean_over_tasks(each))


@pytest.mark.parametrize(
    "plan", [Plan("loop"), Plan("vmap"), Plan("vmap", chunk=2), Plan("threads", 2)], ids=str
)
def test_mapped_results_are_stacked_in_task_order(plan: Plan) -> None:
    batch = problems.regression(5)

    def fn(params: Tree, buffers: Tree, task: Task) -> dict[str, Any]:
        return {"sum": task.x_query.sum() * params["w"], "parts": (task.y_support + buffers["b"], task.id)}

    params, buffers = {"w": torch.tensor(2.0, dtype=torch.float64)}, {"b": torch.ones(1, dtype=torch.float64)}
    mapped = map_tasks(fn, plan)(params, buffers, batch)
    assert_close(mapped["sum"], 2 * batch.x_query.sum((1, 2)))
    assert torch.equal(mapped["parts"][0], batch.y_support + 1)
    assert torch.equal(mapped["parts"][1], torch.arange(5))


# ---- threads ----


def test_threads_sum_in_task_order_whoever_is_first() -> None:
    network, loss, batch = mlp(2, [8], 1), get_loss("mse"), problems.regression(8)
    params, _ = problems.drawn(network, dtype=torch.float32)
    batch = batch.to(dtype=torch.float32)  # where the order of a sum shows in the last bits
    value = episodic(maml(network, loss, 0.1, 2), loss).loss
    assert value is not None
    turn = iter(range(10**6))

    def late(params: Tree, buffers: Tree, task: Task) -> tuple[Tensor, Tree]:
        time.sleep(0.003 * (next(turn) * 7 % 5))  # tasks finish in another order every time
        return value(params, buffers, task)

    expected = meta_gradient(value, Plan("loop"))(params, {}, batch)
    for _ in range(5):
        gradient = meta_gradient(late, Plan("threads", 2))(params, {}, batch)
        assert torch.equal(gradient.losses, expected.losses)
        assert_trees_equal(gradient.grads, expected.grads)
    backwards = TaskBatch(*(field.flip(0) for field in batch))
    other = meta_gradient(value, Plan("loop"))(params, {}, backwards)
    assert any(not torch.equal(other.grads[n], g) for n, g in expected.grads.items())  # the order does matter


def test_threads_run_at_the_same_time_with_one_intra_op_thread_each() -> None:
    meeting, counts = threading.Barrier(2, timeout=PATIENCE), []

    def fn(params: Tree, buffers: Tree, task: Task) -> Tensor:
        meeting.wait()  # passes only if two tasks are under way at once
        counts.append(torch.get_num_threads())
        return task.x_query.sum()

    map_tasks(fn, Plan("threads", 2))({}, {}, problems.regression(4))
    assert counts == [1] * 4


def test_errors_and_no_grad_reach_threads() -> None:
    batch = problems.regression(3)

    def fails(params: Tree, buffers: Tree, task: Task) -> Tensor:
        raise ValueError("task trouble")

    with pytest.raises(ValueError, match="task trouble"):
        map_tasks(fails, Plan("threads", 2))({}, {}, batch)
    w = {"w": torch.ones(1, dtype=torch.float64, requires_grad=True)}
    double = map_tasks(lambda p, b, task: p["w"] * task.x_query.sum(), Plan("threads", 2))
    with torch.no_grad():
        assert not double(w, {}, batch).requires_grad
    assert double(w, {}, batch).requires_grad


@pytest.mark.parametrize(
    "plan", [Plan("loop"), *PLANS.values(), *TRACE.values()], ids=["loop", *PLANS, *TRACE]
)
def test_results_hang_on_no_graph(plan: Plan) -> None:
    network, loss = mlp(2, [4], 1), get_loss("mse")
    params = {n: p.requires_grad_() for n, p in problems.drawn(network)[0].items()}
    run = meta_gradient(episodic(maml(network, loss, 0.1, 2), loss).loss, plan)
    gradient: Gradient = run(params, {}, problems.regression())
    assert all(t.grad_fn is None for t in (gradient.losses, *gradient.grads.values()))
    with torch.no_grad():  # a caller's no_grad must not turn gradients into zeros
        again = run(params, {}, problems.regression())
    assert_trees_equal(again.grads, gradient.grads)


# ---- auto ----


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What ``auto`` takes for the time: it passes when a test or a worker says so, never by itself."""
    now = multiprocessing.RawArray("d", 1)
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    return now


def costly(clock: Any, under_vmap: float, alone: float) -> Callable[..., tuple[Tensor, Tree]]:
    """A loss that takes as many seconds as we say, under vmap and otherwise."""
    turn = multiprocessing.Lock()

    def loss(params: Tree, buffers: Tree, task: Task) -> tuple[Tensor, Tree]:
        batched = torch._C._functorch.is_batchedtensor(task.x_query)
        with turn:
            clock[0] += under_vmap if batched else alone
        return (params["w"] * task.x_query).square().sum(), buffers

    return loss


W = {"w": torch.ones(1, dtype=torch.float64)}


@pytest.mark.parametrize(
    ("under_vmap", "alone", "best"), [(0.2, 0.0, ("loop", "threads", "processes")), (0.0, 0.05, ("vmap",))]
)
def test_auto_takes_the_fastest(under_vmap: float, alone: float, best: tuple[str, ...], clock: Any) -> None:
    loss = costly(clock, under_vmap, alone)
    chosen = choose_plan(W, {}, problems.regression(4), loss=loss, steps=10, threads=2, compile="off")
    assert chosen.plan.mode in best
    label = f"{chosen.plan.mode}@{chosen.plan.threads}"
    assert chosen.milliseconds[label] == min(chosen.milliseconds.values())
    assert label in chosen.plan.reason
    assert f"{chosen.milliseconds[label]:.3g} ms" in chosen.plan.reason


Speeds = dict[str, float]
"""Seconds of a whole step, by the label of its plan."""


def at_speeds(
    monkeypatch: pytest.MonkeyPatch, clock: Any, speeds: Speeds, whole: TaskBatch
) -> list[tuple[str, bool]]:
    """Every way takes the time that is given for it, in proportion to the samples; returns what is run."""
    calls: list[tuple[str, bool]] = []

    def samples(batch: TaskBatch) -> int:
        return batch.size * (batch.x_support.shape[1] + batch.x_query.shape[1])

    def timed(loss: Any, plan: Plan, *, direction: Any) -> Callable[..., None]:
        def run(params: Tree, buffers: Tree, batch: TaskBatch, weights: Tensor | None = None) -> None:
            calls.append((plan.label, batch is whole))
            clock[0] += speeds[plan.label] * samples(batch) / samples(whole)

        return run

    monkeypatch.setattr(auto, "meta_gradient", timed)
    return calls


@pytest.mark.parametrize("seed", range(6))
def test_auto_takes_the_fastest_of_any_speeds(seed: int, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some ways are not worth trying on a whole step; several threads inside operations must be worth it."""
    labels = ["threads@2", "processes@2", "loop@1", "loop@2", "vmap@1", "vmap@2"]
    dice, batch = random.Random(seed), problems.regression(8)
    speeds = {label: dice.uniform(0.01, 1.0) for label in labels}
    at_speeds(monkeypatch, clock, speeds, batch)
    chosen = choose_plan(W, {}, batch, loss=unfit, steps=1, threads=2, compile="off")
    counted = {label: 1.3 * s if label in ("loop@2", "vmap@2") else s for label, s in speeds.items()}
    fastest = min(counted, key=lambda label: counted[label])
    assert chosen.plan.label == fastest
    assert chosen.milliseconds[fastest] == pytest.approx(1000 * speeds[fastest])
    assert len(chosen.milliseconds) + len(chosen.remarks) == len(labels)


def wide_task(queries: int = 450) -> TaskBatch:
    """One task of 30 supports and many queries: a step of it cannot be divided by tasks."""
    x, y = torch.ones(1, 30 + queries, 1), torch.ones(1, 30 + queries, 1)
    return TaskBatch(x[:, :30], y[:, :30], x[:, 30:], y[:, 30:], torch.zeros(1))


def test_slow_steps_are_measured_within_twenty_seconds(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As seen on mini-ImageNet at 84 pixels beside other work; measured to the end that took 154 s."""
    batch = wide_task()
    speeds = {"loop@1": 29.5, "loop@2": 8.2, "vmap@1": 59.9, "vmap@2": 55.7}
    calls = at_speeds(monkeypatch, clock, speeds, batch)
    told: list[tuple[float, str]] = []
    chosen = choose_plan(
        W,
        {},
        batch,
        loss=unfit,
        steps=20_000,
        threads=2,
        compile="off",
        say=lambda line: told.append((clock[0], line)),
    )
    assert chosen.plan.label == "loop@2"
    assert chosen.milliseconds == {"loop@2": pytest.approx(8200)}
    assert clock[0] <= 20
    assert len(calls) == 4  # once each, and no whole step: that would have ended too late
    assert len(chosen.remarks) == 4
    for label in speeds:  # every way is announced before it is run, so that nobody waits for 20 s in silence
        mode, count = label.split("@")
        assert any(f"{mode} on {count} core" in line for _, line in told)
    times = [0.0, *(when for when, _ in told), clock[0]]
    assert max(later - earlier for earlier, later in pairwise(times)) <= 8


@pytest.mark.parametrize(("asked", "tried"), [({}, {"loop@1"}), ({"compile": "trace"}, {"loop@1", "vmap@1"})])
def test_one_task_of_pictures_is_not_vectorised(
    asked: Any, tried: set[str], clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As seen with prototypical networks at 84 pixels: trying it took 27 s, of 20."""
    pictures = torch.ones(1, 30, 3, 8, 8)
    batch = wide_task()._replace(x_support=pictures, x_query=pictures, y_query=torch.ones(1, 30, 1))
    calls = at_speeds(monkeypatch, clock, {"loop@1": 2.0, "vmap@1": 3.0}, batch)
    choose_plan(W, {}, batch, loss=unfit, steps=20_000, threads=1, **asked)
    assert {label for label, _ in calls} == tried


def test_ways_are_not_measured_any_more_when_time_is_up(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = wide_task()
    speeds = {"loop@1": 100.0, "loop@2": 99.0, "vmap@1": 98.0, "vmap@2": 97.0}
    calls = at_speeds(monkeypatch, clock, speeds, batch)
    chosen = choose_plan(W, {}, batch, loss=unfit, steps=20_000, threads=2, compile="off")
    assert calls == [("loop@1", False)]  # neither another way nor a whole step would have ended in 20 s
    assert chosen.plan.label == "loop@1"
    assert chosen.milliseconds == {"loop@1": pytest.approx(100_000)}  # eight times its part
    assert "loop@1: estimated from part of the queries of a step" in chosen.remarks
    assert sum("not measured, because 20 s have to do" in remark for remark in chosen.remarks) == 3


@pytest.mark.parametrize(("steps", "wholes"), [(10_000, 4), (10, 1)])
def test_short_runs_are_measured_for_less(
    steps: int, wholes: int, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four ways alike, of 2.4 s a step: 20 s are for runs of which that is 2 %, a short one gets 5 s."""
    batch = wide_task()
    speeds = {"loop@1": 2.4, "loop@2": 2.4, "vmap@1": 2.4, "vmap@2": 2.4}
    calls = at_speeds(monkeypatch, clock, speeds, batch)
    choose_plan(W, {}, batch, loss=unfit, steps=steps, threads=2, compile="off")
    assert len({label for label, whole in calls if whole}) == wholes
    assert clock[0] <= (20 if wholes > 1 else 5 + 2.4)


def test_a_slower_way_is_not_repeated(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = problems.regression(2)
    calls = at_speeds(monkeypatch, clock, {"loop@1": 0.04, "vmap@1": 0.08}, batch)
    monkeypatch.setattr(timing, "part_of", lambda batch: batch)
    choose_plan(W, {}, batch, loss=unfit, steps=10, threads=1, compile="off")
    assert Counter(label for label, _ in calls) == {"loop@1": 6, "vmap@1": 2}


def test_one_quick_call_that_was_disturbed_does_not_decide(clock: Any) -> None:
    took = iter([0.002, 0.02, 0.002, 0.003, 0.002, 0.002])

    def call() -> None:
        clock[0] += next(took)

    assert timing.seconds_per_call(call, best=0.004) == pytest.approx(0.002)


@pytest.mark.parametrize("plan", [Plan("threads", 2), Plan("processes", 2), Plan("loop", 1)], ids=str)
def test_plans_with_the_same_results_have_the_same_bits(plan: Plan) -> None:
    net, loss, batch = mlp(2, [7, 5], 1), get_loss("mse"), problems.regression(5)
    params = {name: value.double() for name, value in net.init(torch.Generator().manual_seed(0))[0].items()}
    value = episodic(maml(net, loss, 0.1, 2), loss).loss
    plans = auto.same_results(plan, 4)
    counted = {"loop@1", "threads@2", "threads@4", "processes@2", "processes@4"}
    assert (plans[0], {one.label for one in plans}) == (plan, counted)
    first, *others = (run_by(one, value, params, batch) for one in plans)
    for other in others:
        assert_trees_equal(other.grads, first.grads)
        assert torch.equal(other.losses, first.losses)


def run_by(plan: Plan, value: Any, params: Tree, batch: TaskBatch) -> Gradient:
    with torch_threads(plan):
        return meta_gradient(value, plan)(params, {}, batch)


def test_only_what_gives_the_same_bits_is_the_same() -> None:
    for alone in (Plan("vmap"), Plan("vmap", compile="full"), Plan("loop", 2)):
        assert auto.same_results(alone, 4) == [alone]
    native = auto.same_results(Plan("threads", 4, compile="native"), 4)
    assert [one.label for one in native] == ["threads@4+native", "loop@1+native", "threads@2+native"]
    assert auto.same_results(Plan("processes", 2), 2, "processes") == [Plan("processes", 2)]  # as asked for


def test_only_given_plans_are_measured(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, given = problems.regression(8), [Plan("threads", 2), Plan("loop", 1)]
    calls = at_speeds(monkeypatch, clock, {"threads@2": 0.2, "loop@1": 0.15}, batch)
    chosen = choose_plan(W, {}, batch, loss=unfit, steps=10**9, threads=2, plans=given)
    assert (chosen.plan.label, chosen.plan.compile) == ("loop@1", "off")
    assert {label for label, _ in calls} == {"threads@2", "loop@1"}


def test_a_loss_that_needs_all_queries_is_measured_on_all(
    clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def whole_only(params: Tree, buffers: Tree, task: Task) -> tuple[Tensor, Tree]:
        if len(task.x_query) != 450:
            raise RuntimeError("all queries are needed")
        return (params["w"] * task.x_query).square().sum(), buffers

    chosen = choose_plan(W, {}, wide_task(), loss=whole_only, steps=10, threads=2, compile="off")
    assert set(chosen.milliseconds) == {"loop@1", "loop@2", "vmap@1", "vmap@2"}
    assert chosen.remarks == []


@pytest.mark.parametrize(("gain", "threads"), [(1.25, 1), (1.35, 2)])
def test_several_threads_inside_operations_must_be_worth_it(
    gain: float, threads: int, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stand still when another program takes one of the cores, which one thread would not notice."""
    batch = problems.regression(2)
    at_speeds(monkeypatch, clock, {"vmap@1": 0.01 * gain, "vmap@2": 0.01}, batch)
    chosen = choose_plan(W, {}, batch, loss=unfit, steps=10, threads=2, compile="off", execution="vmap")
    assert chosen.plan == chosen.plan._replace(mode="vmap", threads=threads)
    assert set(chosen.milliseconds) == {"vmap@1", "vmap@2"}


forked = pytest.mark.skipif(
    start_method() != "fork", reason="the clock is in memory that is shared when forked"
)


@pytest.mark.parametrize("mode", ["vmap", "threads", pytest.param("processes", marks=forked), "loop"])
def test_a_mode_that_is_asked_for_is_kept(mode: str, clock: Any) -> None:
    loss = costly(clock, 0.01, 0.01)
    chosen = choose_plan(W, {}, problems.regression(4), loss=loss, steps=10, execution=mode, chunk=3)
    assert chosen.plan.mode == mode
    assert chosen.plan.chunk == (3 if mode == "vmap" else None)
    assert set(chosen.milliseconds) <= {f"{mode}@{n}" for n in (1, available_cores())}
    assert f"execution={mode} was asked for" in chosen.plan.reason


def unfit(params: Tree, buffers: Tree, task: Task) -> tuple[Tensor, Tree]:
    scale = task.x_query.abs().max().item()  # a number from a tensor: impossible under vmap
    return (params["w"] * task.x_query / scale).square().sum(), buffers


def test_what_cannot_be_vmapped_falls_back_with_a_remark() -> None:
    chosen = choose_plan(W, {}, problems.regression(4), loss=unfit, steps=10**9, threads=2)
    assert chosen.plan.mode in ("loop", "threads", "processes")
    remarks = [r for r in chosen.remarks if "vmap is not possible here" in r]
    assert len(remarks) == 1
    assert ".item()" in remarks[0]


def test_a_module_that_cannot_be_vmapped_trains_all_the_same() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.readout = nn.Linear(2, 4), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            z = self.body(x)
            return self.readout(z if float(z.detach().abs().max()) < 1e6 else z.tanh())

    network, loss = from_module(Odd().double()), get_loss("mse")
    params, buffers = network.init(torch.Generator())
    value = episodic(maml(network, loss, 0.1, 2), loss).loss
    chosen = choose_plan(params, buffers, problems.regression(), loss=value, steps=10, threads=2)
    assert chosen.plan.mode != "vmap"
    assert torch.isfinite(
        meta_gradient(value, chosen.plan)(params, buffers, problems.regression()).losses
    ).all()


def test_what_cannot_run_at_all_says_so_itself() -> None:
    def broken(params: Tree, buffers: Tree, task: Task) -> tuple[Tensor, Tree]:
        raise RuntimeError("sizes do not fit")

    with pytest.raises(RuntimeError, match="sizes do not fit"):
        choose_plan(W, {}, problems.regression(4), loss=broken, steps=10, threads=2)


def test_modes_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UserError, match="there are auto, vmap, threads, processes and loop"):
        choose_plan(W, {}, problems.regression(4), loss=unfit, steps=10, execution="parallel")
    with pytest.raises(UserError, match=r"^checkpoint=true needs execution=threads"):
        choose_plan(W, {}, problems.regression(4), loss=unfit, steps=10, execution="vmap", allow_vmap=False)


@pytest.fixture(autouse=True, scope="module")
def _nothing_left_to_collect() -> None:
    """Worker processes of other tests end here, and not in a thread that recomputes steps.

    A collection there may run while torch holds the lock of its random numbers, for which others wait.
    """
    gc.collect()


def test_recomputed_steps_are_never_given_to_vmap(smooth_net: Network, regression_batch: TaskBatch) -> None:
    learner = maml(smooth_net, get_loss("mse"), 0.1, 2, checkpoint=True)
    chosen = choose_plan(
        problems.drawn(smooth_net)[0],
        {},
        regression_batch,
        loss=episodic(learner, get_loss("mse")).loss,
        steps=10**6,
        allow_vmap=False,
    )
    assert chosen.plan.mode != "vmap"
    assert not any(label.startswith("vmap") for label in chosen.milliseconds)


def test_plans_survive_json() -> None:
    plan = Plan("vmap", 2, 8, "trace", "because")
    assert Plan(**plan.as_dict()) == plan
    assert str(plan) == "vmap, 2 threads, chunks of 8, compile=trace"


def test_the_time_to_compile_is_not_taken_for_the_time_of_a_step():
    from innerloop.training.execution.auto import _try_compiled

    eager, seconds = Plan("vmap", 1), iter([30.0, 0.001])
    milliseconds = {"vmap@1": 5.0}
    plan, _ = _try_compiled(eager, "full", lambda plan: next(seconds), milliseconds, forced=False)
    assert plan.compile == "full"
    assert milliseconds["vmap@1+full"] == 1.0


def test_a_plan_is_checked_when_it_is_made() -> None:
    with pytest.raises(UserError, match="no mode='vmapp' \\(did you mean 'vmap'\\?\\)"):
        Plan("vmapp")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="no compile='fast'"):
        Plan("vmap", compile="fast")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="threads=0 must be a whole number from 1 up"):
        Plan("threads", 0)
    plan = Plan("threads", 2)
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert plan._replace(threads=3) == Plan("threads", 3)
