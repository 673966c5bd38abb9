"""Tasks in worker processes: the same bits as one after the other, whoever dies on the way."""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from innerloop.core.child_processes import start_method
from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.types import Batch, RaggedBatch, Task, TaskBatch
from innerloop.evaluation import evaluate
from innerloop.learners import Objective, anil, episodic, imaml, maml, meta_sgd, multitask, reptile
from innerloop.nets import conv4, from_module, mlp
from innerloop.tasks import Sampler
from innerloop.testing.closeness import assert_trees_equal
from innerloop.training import (
    Gradient,
    Plan,
    TrainState,
    choose_plan,
    fit,
    make_optimiser,
    map_tasks,
    meta_gradient,
)
from innerloop.training.execution import timing, worker_pool
from innerloop.training.execution.mapping import ProcessMap
from innerloop.training.execution.shared_memory import Arena, layout_of
from innerloop.training.execution.worker import WorkersError
from oracles import problems
from oracles.patience import wait_until
from oracles.training import problem, sines

Tree = dict[str, Tensor]
Case = tuple[Objective, Tree, Tree, Batch]
TWO = Plan("processes", 2)
forked = pytest.mark.skipif(start_method() != "fork", reason="what tests hold in memory is there when forked")


def conv_case(make: Any, dtype: torch.dtype, norm: str, **options: Any) -> Case:
    network, loss = conv4(1, 16, 3, filters=4, norm=norm), get_loss("cross-entropy")
    learner = make(network, loss, 0.1, 2, **options)
    params, buffers = problems.drawn(network, dtype=dtype)
    return episodic(learner, loss), learner.init(params), buffers, problems.images(3).to(dtype=dtype)


def module_case(dtype: torch.dtype) -> Case:
    made = nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=4), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3)
    )
    network, loss = from_module(made.to(dtype), norm="running"), get_loss("cross-entropy")
    params, buffers = problems.drawn(network, dtype=dtype)
    return episodic(maml(network, loss, 0.1, 2), loss), params, buffers, problems.images(3).to(dtype=dtype)


def dense_case(kind: str, dtype: torch.dtype) -> Case:
    network, loss = mlp(2, [6], 1), get_loss("mse")
    params, buffers = problems.drawn(network, dtype=dtype)
    batch: Batch = problems.regression(3).to(dtype=dtype)
    if kind == "ragged":
        batch = RaggedBatch(tuple(problems.regression(1, shots=n).to(dtype=dtype).task(0) for n in (4, 7, 2)))
    objective = {
        "ragged": lambda: episodic(maml(network, loss, 0.1, 2), loss),
        "reptile": lambda: reptile(maml(network, loss, 0.1, 2), loss),
        "multitask": lambda: multitask(network, loss, 7),
        "imaml": lambda: episodic(imaml(network, loss, 0.1, 3), loss),
    }[kind]()
    if objective.init is not None:
        params = objective.init(params, torch.Generator().manual_seed(0))
    return objective, params, buffers, batch


CASES: dict[str, Callable[[torch.dtype], Case]] = {
    "maml, running statistics": lambda dtype: conv_case(maml, dtype, "running"),
    "anil, support statistics": lambda dtype: conv_case(anil, dtype, "support"),
    "meta-sgd": lambda dtype: conv_case(meta_sgd, dtype, "transductive"),
    "recomputed": lambda dtype: conv_case(maml, dtype, "running", checkpoint=True),
    "module": module_case,
    **{k: lambda dtype, k=k: dense_case(k, dtype) for k in ("ragged", "reptile", "multitask", "imaml")},  # type: ignore[misc]
}


def gradient(case: Case, plan: Plan, weights: Tensor | None = None) -> Gradient:
    objective, params, buffers, batch = case
    run = meta_gradient(objective.loss, plan, direction=objective.direction)
    return run(params, buffers, batch, weights)


def assert_same(actual: Gradient, expected: Gradient) -> None:
    assert torch.equal(actual.losses, expected.losses)
    assert_trees_equal(actual.grads, expected.grads)
    assert_trees_equal(actual.buffers, expected.buffers)


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """As workers have."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# ---- the same numbers ----


@forked
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(3)
def test_processes_and_a_loop_agree_bit_by_bit(name: str, dtype: torch.dtype) -> None:
    case = CASES[name](dtype)
    expected = gradient(case, Plan("loop"))
    assert any(g.any() for g in expected.grads.values())
    assert_same(gradient(case, TWO), expected)
    if name in ("ragged", "reptile"):
        weights = torch.tensor([0.5, 0.2, 0.3], dtype=dtype)
        actual, expected = (gradient(case, plan, weights) for plan in (TWO, Plan("loop")))
        assert_same(actual, expected)
    if name.startswith("maml"):
        assert any(not torch.equal(b, case[2][n]) for n, b in expected.buffers.items())
        assert_same(gradient(case, Plan("threads", 2)), expected)


@forked
def test_workers_outlive_calls_and_batches_may_grow() -> None:
    objective, params, _, _ = dense_case("ragged", torch.float64)
    run, loop = meta_gradient(objective.loss, TWO), meta_gradient(objective.loss, Plan("loop"))
    kept = run(params, {}, problems.regression(1))
    first = run.processes.pool.pids  # type: ignore[attr-defined]
    assert len(first) == 1  # no more than there are tasks
    copy = {n: g.clone() for n, g in kept.grads.items()}
    for seed, tasks in enumerate((1, 9, 2, 9)):
        batch = problems.regression(tasks, shots=4 * tasks, seed=seed)
        moved = {n: p + seed for n, p in params.items()}
        assert_same(run(moved, {}, batch), loop(moved, {}, batch))
    assert_trees_equal(kept.grads, copy)  # later calls do not write over what was returned
    last = run.processes.pool.pids  # type: ignore[attr-defined]
    run(params, {}, problems.regression(9))
    assert run.processes.pool.pids == last  # type: ignore[attr-defined]
    assert not any(map(alive, first))
    del run
    wait_until(lambda: not any(map(alive, last)))


@forked
def test_workers_end_though_later_ones_live_on() -> None:
    """Processes that were forked later have copies of all connections."""
    first, second = ProcessMap(in_turn, 2), ProcessMap(in_turn, 2)
    for mapped in (first, second):
        mapped(W, {}, problems.regression(2))
    workers = [worker.process for worker in first.pool._workers.values()]
    first.close()
    assert [process.exitcode for process in workers] == [0, 0]
    assert all(map(alive, second.pool.pids))


@forked
def test_sums_are_in_task_order_whoever_is_first() -> None:
    network, loss, batch = mlp(2, [8], 1), get_loss("mse"), problems.regression(8).to(dtype=torch.float32)
    params, _ = problems.drawn(network, dtype=torch.float32)
    value = episodic(maml(network, loss, 0.1, 2), loss).loss
    assert value is not None

    def late(params: Tree, buffers: Tree, task: Task) -> tuple[Tensor, Tree]:
        time.sleep(0.02 if int(task.id) == 0 else 0.0)
        return value(params, buffers, task)

    expected = meta_gradient(value, Plan("loop"))(params, {}, batch)
    assert_same(meta_gradient(late, Plan("processes", 3))(params, {}, batch), expected)


@forked
def test_evaluation_in_processes() -> None:
    learner, loss = maml(mlp(1, [5], 1), get_loss("mse"), 0.01, 2), get_loss("mse")
    params = mlp(1, [5], 1).init(torch.Generator().manual_seed(0))[0]
    params = {n: p.double() for n, p in params.items()}
    evaluation = [evaluate(learner, params, {}, sines(), loss, 7, plan, batch=3) for plan in (Plan(), TWO)]
    assert evaluation[0].scores == evaluation[1].scores


@forked
def test_mapped_results_of_every_kind_come_back_in_order() -> None:
    batch = problems.regression(5)

    def fn(params: Tree, buffers: Tree, task: Task) -> dict[str, Any]:
        large = task.x_query.sum() * torch.ones(300, 300, dtype=torch.float64)
        return {"large": large.T, "parts": (task.y_support + buffers["b"], task.id), "none": large[:0] > 0}

    buffers = {"b": torch.ones(1, dtype=torch.float64)}
    expected = map_tasks(fn, Plan("loop"))({}, buffers, batch)
    mapped = map_tasks(fn, TWO)({}, buffers, batch)
    assert torch.equal(mapped["large"], expected["large"])
    assert torch.equal(mapped["parts"][0], batch.y_support + 1)
    assert torch.equal(mapped["parts"][1], torch.arange(5))
    assert mapped["none"].shape == (5, 0, 300)
    assert mapped["none"].dtype == torch.bool


def test_tensors_lie_in_shared_memory_as_they_lay_before() -> None:
    """Strides and alignment decide in which order sums are taken."""
    arena = Arena(multiprocessing.get_context("spawn"), 4096)
    whole = torch.arange(240.0).reshape(2, 3, 5, 8)
    for tensor in (
        whole,
        whole[1],
        whole[:, 1:],
        whole.to(memory_format=torch.channels_last),
        whole.mT,
        torch.tensor(3).expand(4, 2),
        torch.zeros(3, 0),
        torch.tensor(True),
    ):
        place = layout_of(tensor, 100)
        arena.put(tensor, place)
        there = arena.at(place)
        assert torch.equal(there, tensor)
        assert (there.stride(), there.dtype) == (tensor.stride(), tensor.dtype)
        if tensor.numel():
            assert there.data_ptr() % 64 == tensor.data_ptr() % 64
        assert pickle.loads(pickle.dumps(place)) == place


def in_turn(params: Tree, buffers: Tree, task: Task) -> Tensor:
    return params["w"] * task.x_query.sum()


def test_workers_that_start_afresh_get_closures_and_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows and macOS: nothing is there that was not sent."""
    monkeypatch.setattr(worker_pool, "start_method", lambda: "spawn")
    case = module_case(torch.float32)
    assert_same(gradient(case, Plan("processes", 1)), gradient(case, Plan("loop")))


def test_what_cannot_be_sent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "start_method", lambda: "spawn")
    turns = (i for i in range(3))
    with pytest.raises(WorkersError, match=r"generator.*set execution=threads"):
        map_tasks(lambda p, b, task: task.x_query.sum() + next(turns), TWO)


# ---- errors ----


class OddError(Exception):
    """Cannot be made from one argument, as pickle would."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


@forked
@pytest.mark.parametrize(
    "error", [ValueError("task trouble"), UserError("lower {lr}.", names=("lr",))], ids=str
)
def test_an_error_in_a_worker_arrives_as_itself(error: Exception) -> None:
    def fails(params: Tree, buffers: Tree, task: Task) -> Tensor:
        if int(task.id) in (2, 3):
            time.sleep(0.05 if int(task.id) == 2 else 0.0)
            raise type(error)(f"{int(task.id)}: {error}") if isinstance(error, ValueError) else error
        return params["w"] * task.x_query.sum()

    mapped, w = ProcessMap(fails, 2), {"w": torch.ones(1)}
    with pytest.raises(
        type(error), match="2: task trouble" if isinstance(error, ValueError) else "lower lr"
    ) as at:
        mapped(w, {}, problems.regression(6))
    notes = "".join(getattr(at.value, "__notes__", ()))
    assert ("task 2 of the batch" in notes and "in fails" in notes) == isinstance(error, ValueError)
    pids = mapped.pool.pids
    assert len(mapped(w, {}, problems.regression(2))) == 2  # the same workers go on
    assert mapped.pool.pids == pids


@forked
def test_an_error_that_cannot_travel_sends_its_name() -> None:
    def fails(params: Tree, buffers: Tree, task: Task) -> Tensor:
        raise OddError("task ", "trouble")

    with pytest.raises(RuntimeError, match="OddError: task trouble"):
        map_tasks(fails, TWO)({}, {}, problems.regression(2))


def test_what_would_come_back_wrong_is_refused() -> None:
    batch, w = problems.regression(2), {"w": torch.ones(1, requires_grad=True)}
    with pytest.raises(UserError, match=r"torch\.no_grad\(\)"):
        map_tasks(in_turn, TWO)(w, {}, batch)
    with pytest.raises(WorkersError, match="on meta: set execution=loop"):
        map_tasks(in_turn, TWO)({"w": torch.ones(1, device="meta")}, {}, batch)


# ---- deaths ----


def deadly(marker: Path, times: int, number: int = 1) -> Callable[..., Any]:
    """A loss that kills its process at one task of the batch, so many times."""

    def loss(params: Tree, buffers: Tree, task: Task) -> tuple[Tensor, Tree]:
        if int(task.id) == number and len(list(marker.iterdir())) < times:
            (marker / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return (params["w"] * task.x_query).square().sum(), buffers

    return loss


W = {"w": torch.ones(1, dtype=torch.float64)}


@forked
def test_a_killed_worker_is_named_and_the_numbers_are_the_same(tmp_path: Path) -> None:
    batch = problems.regression(6)
    expected = meta_gradient(deadly(tmp_path, 0), Plan("loop"))(W, {}, batch)
    run = meta_gradient(deadly(tmp_path, worker_pool.LIVES - 1), TWO)
    with pytest.warns(RuntimeWarning, match="was ended by SIGKILL .* a new one does its tasks again") as seen:
        gradient = run(W, {}, batch)
    told = [str(warning.message) for warning in seen]
    assert len(told) == worker_pool.LIVES - 1
    assert all(any(f"(process {file.name})" in text for text in told) for file in tmp_path.iterdir())
    assert_same(gradient, expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(run(W, {}, batch), expected)


@forked
def test_workers_killed_between_calls_are_replaced() -> None:
    mapped = ProcessMap(in_turn, 2)
    expected = [float(v) for v in mapped(W, {}, problems.regression(4))]
    for pid in mapped.pool.pids:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda pid=pid: not alive(pid))  # type: ignore[misc]
    with pytest.warns(RuntimeWarning, match="a new one takes its place"):
        assert [float(v) for v in mapped(W, {}, problems.regression(4))] == expected


@forked
@pytest.mark.filterwarnings("ignore:worker:RuntimeWarning")
def test_a_task_that_kills_its_workers_stops_the_run_with_its_checkpoint(tmp_path: Path) -> None:
    calls, kept = iter(range(100)), list[TrainState]()
    value = deadly(tmp_path, worker_pool.LIVES)

    def batch(indices: Any) -> TaskBatch:
        return problems.regression(3)._replace(id=torch.arange(3) if next(calls) == 2 else torch.zeros(3))

    state = problem()[1]._replace(params=W, buffers={}, optimiser={})
    with pytest.raises(WorkersError, match=r"worker \d \(process \d+\) was ended by SIGKILL .* at task 1"):
        fit(
            Objective("deadly", value),
            state,
            Sampler(batch),
            make_optimiser("sgd", 0.01),
            steps=10,
            batch=3,
            plan=TWO,
            save=lambda state, tags: kept.append(state),
        )
    assert [state.step for state in kept] == [2]
    assert len(list(tmp_path.iterdir())) == worker_pool.LIVES


@forked
def test_workers_end_with_a_parent_that_is_killed() -> None:
    """Also those that were forked after, and have copies of the connections of, the others."""
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()

    def parent() -> None:
        mapped = ProcessMap(in_turn, 3)
        mapped(W, {}, problems.regression(3))
        theirs.send(mapped.pool.pids)
        os.kill(os.getpid(), signal.SIGKILL)

    process = context.Process(target=parent)
    process.start()
    pids = mine.recv()
    process.join()
    assert len(set(pids)) == 3
    wait_until(lambda: not any(map(alive, pids)))


@forked
def test_workers_that_nobody_holds_end_without_being_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection may run where torch holds a lock: who waits there may wait for ever."""
    mapped = ProcessMap(lambda params, buffers, task: task.x_query.sum(), 2)
    mapped(W, {}, problems.regression(2))
    pids = mapped.pool.pids
    for name in ("send", "close"):
        monkeypatch.setattr(multiprocessing.connection.Connection, name, lambda *_: pytest.fail("it waits"))
    del mapped
    gc.collect()
    wait_until(lambda: not any(map(alive, pids)))
    assert len(set(pids)) == 2


@forked
def test_an_interrupt_is_not_the_workers_business_and_leaves_none_at_work() -> None:
    def slow(params: Tree, buffers: Tree, task: Task) -> Tensor:
        os.kill(os.getpid(), signal.SIGINT)  # as a terminal sends it to all processes
        if int(task.id) == 1:
            os.kill(os.getppid(), signal.SIGINT)
            time.sleep(3600)
        return task.x_query.sum()

    mapped, quick = ProcessMap(slow, 2), problems.regression(2)._replace(id=torch.zeros(2))
    assert len(mapped(W, {}, quick)) == 2
    pids = mapped.pool.pids
    assert len(set(pids)) == 2
    with pytest.raises(KeyboardInterrupt):
        mapped(W, {}, problems.regression(3))
    assert not any(map(alive, pids))
    assert len(mapped(W, {}, quick)) == 2


@forked
def test_a_process_that_may_not_start_others_says_so() -> None:
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()

    def daemon() -> None:
        try:
            map_tasks(in_turn, TWO)(W, {}, problems.regression(2))
        except WorkersError as error:
            theirs.send(str(error))

    process = context.Process(target=daemon, daemon=True)
    process.start()
    assert "set execution=threads" in mine.recv()
    process.join()


# ---- auto ----


@forked
def test_auto_measures_processes_beside_the_others() -> None:
    objective, params, _, _ = dense_case("ragged", torch.float64)
    batch, options = problems.regression(2), {"loss": objective.loss, "steps": 10, "threads": 2}
    chosen = choose_plan(params, {}, batch, **options, allow_vmap=False)  # type: ignore[arg-type]
    assert set(chosen.milliseconds) == {"threads@2", "processes@2", "loop@1", "loop@2"}
    asked = choose_plan(params, {}, batch, **options, execution="processes")  # type: ignore[arg-type]
    assert str(asked.plan) == "processes, 2 workers"
    assert set(asked.milliseconds) == {"processes@2"}


def test_auto_does_not_start_afresh_for_a_short_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "start_method", lambda: "spawn")
    objective, params, _, _ = dense_case("ragged", torch.float64)
    chosen = choose_plan(
        params, {}, problems.regression(2), loss=objective.loss, steps=1, threads=2, allow_vmap=False
    )
    assert any("too short to start processes" in remark for remark in chosen.remarks)
