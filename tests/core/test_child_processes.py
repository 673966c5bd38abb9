"""How worker processes are started: forked, unless torch would refuse to differentiate in them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import innerloop
from innerloop.core import child_processes
from innerloop.core.child_processes import (
    differentiates_when_forked,
    end_pool,
    new_pool,
    start_method,
    starting_workers,
)
from oracles.patience import PATIENCE, wait_until

linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")


@pytest.fixture(autouse=True)
def _tried_again() -> Iterator[None]:
    """What a test pretends is forgotten after it."""
    differentiates_when_forked.cache_clear()
    yield
    differentiates_when_forked.cache_clear()


@contextmanager
def one_process() -> Iterator[ProcessPoolExecutor]:
    pool = new_pool(1, int)
    try:
        yield pool
    finally:
        end_pool(pool)


def differentiate() -> None:
    x = torch.ones(3, requires_grad=True)
    x.square().sum().backward()


@linux
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_it_is_known_whether_forked_processes_may_differentiate() -> None:
    differentiate()
    process = multiprocessing.get_context("fork").Process(target=differentiate)
    process.start()
    process.join()
    assert differentiates_when_forked() == (process.exitcode == 0)


@linux
def test_where_torch_refuses_processes_are_started_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = list[int]()

    def only_in_the_first_process() -> bool:
        """As torch does where autograd has threads of its own."""
        begun.append(os.getpid())
        if len(set(begun)) > 1:
            raise RuntimeError("Unable to handle autograd's threading in combination with fork")
        return True

    monkeypatch.setattr(child_processes, "_differentiates", only_in_the_first_process)
    assert not differentiates_when_forked()
    assert start_method() == "spawn"
    # asked for, or the system's own after a library has looked
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none: "fork")
    assert start_method() == "spawn"


@linux
def test_a_trial_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_processes, "PATIENCE", 0.05)
    monkeypatch.setattr(child_processes, "_differentiates", lambda: time.sleep(600) is None)
    assert not differentiates_when_forked()


def test_what_the_program_has_set_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_processes, "differentiates_when_forked", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    for system, chosen, method in [
        ("linux", None, "fork"),
        ("linux", "spawn", "spawn"),
        ("linux", "forkserver", "spawn"),
        ("darwin", None, "spawn"),
        ("darwin", "fork", "fork"),
    ]:
        monkeypatch.setattr(sys, "platform", system)
        monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none, chosen=chosen: chosen)
        assert start_method() == method


def test_pools_are_started_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_processes, "start_method", lambda: "spawn")
    with one_process() as pool:
        name = pool.submit(eval, "__import__('multiprocessing').current_process().name").result()
    assert name.startswith("SpawnProcess")


@linux
def test_interrupts_are_the_business_of_the_parent(capfd: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C reaches all processes of a terminal: a worker goes on, and writes nothing."""
    before = signal.signal(signal.SIGTERM, _raise)
    try:
        with pytest.raises(BrokenProcessPool):
            _signalled()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert capfd.readouterr().err == ""


def _raise(*_: object) -> None:
    raise KeyboardInterrupt


def _signalled() -> None:
    with one_process() as pool:
        with starting_workers():
            worker = pool.submit(os.getpid).result()
        os.kill(worker, signal.SIGINT)
        assert pool.submit(abs, -1).result() == 1
        os.kill(worker, signal.SIGTERM)  # what its parent would raise, it does not
        pool.submit(time.sleep, PATIENCE).result()


@linux
def test_a_signal_waits_until_a_worker_knows_what_to_do_with_it() -> None:
    with one_process() as pool:
        with starting_workers():
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, set())
            job = pool.submit(signal.pthread_sigmask, signal.SIG_BLOCK, set())
        after = signal.pthread_sigmask(signal.SIG_BLOCK, set())
        assert {signal.SIGINT, signal.SIGTERM} <= blocked
        assert not {signal.SIGINT, signal.SIGTERM} & {*after, *job.result()}


@linux
def test_an_interrupt_ends_what_is_under_way() -> None:
    started, workers = time.monotonic(), list[int]()
    with pytest.raises(KeyboardInterrupt):
        _interrupted(workers)
    wait_until(lambda: not Path(f"/proc/{workers[0]}/exe").exists())
    assert time.monotonic() - started < PATIENCE


def _interrupted(workers: list[int]) -> None:
    with one_process() as pool:
        with starting_workers():
            workers.append(pool.submit(os.getpid).result())
            pool.submit(time.sleep, 10 * PATIENCE)
        raise KeyboardInterrupt


def test_there_is_one_place_that_makes_pools() -> None:
    root = Path(innerloop.__file__).parent
    made = [file.name for file in root.rglob("*.py") if "ProcessPoolExecutor(" in file.read_text("utf-8")]
    assert made == ["child_processes.py"]
