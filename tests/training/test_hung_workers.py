"""A worker that neither answers nor computes is found, named and replaced; a slow one is left alone."""

from __future__ import annotations

import itertools
import os
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from innerloop.core.child_processes import start_method
from innerloop.core.types import Task
from innerloop.training import Plan
from innerloop.training.execution import worker_pool
from innerloop.training.execution.gradients import meta_gradient
from innerloop.training.execution.mapping import ProcessMap
from innerloop.training.execution.worker import WorkersError
from oracles import problems

pytestmark = pytest.mark.skipif(
    start_method() != "fork" or not Path("/proc/self/stat").exists(), reason="needs fork and /proc"
)
Tree = dict[str, Tensor]
W = {"w": torch.ones(1, dtype=torch.float64)}


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three looks instead of minutes; what decides is still that no processor time was used."""
    monkeypatch.setattr(worker_pool, "CHECK_EVERY", 0.1)
    monkeypatch.setattr(worker_pool, "HUNG_AFTER", 0.3)


def hanging(marker: Path, times: int, how: Callable[[], Any]) -> Callable[..., Any]:
    """A loss that hangs at task 1 of the batch, so many times."""

    def loss(params: Tree, buffers: Tree, task: Task) -> tuple[Tensor, Tree]:
        if int(task.id) == 1 and len(list(marker.iterdir())) < times:
            (marker / str(os.getpid())).touch()
            how()
        return (params["w"] * task.x_query).square().sum(), buffers

    return loss


def sleep() -> None:
    time.sleep(3600)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.parametrize("how", [sleep, stop])
def test_a_worker_that_hangs_is_named_and_the_numbers_are_the_same(
    how: Callable[[], Any], tmp_path: Path
) -> None:
    batch = problems.regression(4)
    expected = meta_gradient(hanging(tmp_path, 0, how), Plan("loop"))(W, {}, batch)
    run = meta_gradient(hanging(tmp_path, 1, how), Plan("processes", 2))
    with pytest.warns(RuntimeWarning, match=r"neither answered nor computed for 0\.3 seconds") as seen:
        gradient = run(W, {}, batch)
    (file,) = tmp_path.iterdir()
    told = [str(warning.message) for warning in seen if f"(process {file.name})" in str(warning.message)]
    assert "a new one does its tasks again, and no number changes" in told[0]
    assert torch.equal(gradient.losses, expected.losses)
    assert torch.equal(gradient.grads["w"], expected.grads["w"])


@pytest.mark.filterwarnings("ignore:worker:RuntimeWarning")
def test_a_task_at_which_every_worker_hangs_ends_with_a_sentence(tmp_path: Path) -> None:
    run = ProcessMap(hanging(tmp_path, worker_pool.LIVES, sleep), 2)
    told = r"worker \d \(process \d+\) neither answered nor computed for .* at task 1 of the batch"
    with pytest.raises(WorkersError, match=told):
        run(W, {}, problems.regression(3))
    assert len(list(tmp_path.iterdir())) == worker_pool.LIVES


def test_a_worker_that_computes_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = itertools.count()
    monkeypatch.setattr(worker_pool, "processor_ticks", lambda pid: next(looks))

    def slow(params: Tree, buffers: Tree, task: Task) -> Tensor:
        time.sleep(1.0)  # three times as long as one may be still
        return task.x_query.sum()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(ProcessMap(slow, 2)(W, {}, problems.regression(1))) == 1
    assert next(looks) > 3


def test_nothing_hangs_where_nobody_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "processor_ticks", lambda pid: None)
    watch = worker_pool.HangDetector()
    assert not any(watch.hangs(1) for _ in range(100))
