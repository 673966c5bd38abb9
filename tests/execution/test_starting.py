"""How worker processes are started: forked, unless torch would refuse to differentiate in them."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import innerloop
from innerloop.execution import starting
from innerloop.execution.starting import differentiates_when_forked, process_pool, start_method

linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")


@pytest.fixture(autouse=True)
def _tried_again() -> Iterator[None]:
    """What a test pretends is forgotten after it."""
    differentiates_when_forked.cache_clear()
    yield
    differentiates_when_forked.cache_clear()


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

    monkeypatch.setattr(starting, "_differentiates", only_in_the_first_process)
    assert not differentiates_when_forked()
    assert start_method() == "spawn"
    # asked for, or the system's own after a library has looked
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none: "fork")
    assert start_method() == "spawn"


@linux
def test_a_trial_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "PATIENCE", 0.05)
    monkeypatch.setattr(starting, "_differentiates", lambda: time.sleep(600) is None)
    assert not differentiates_when_forked()


def test_what_the_program_has_set_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "differentiates_when_forked", lambda: True)
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
    monkeypatch.setattr(starting, "start_method", lambda: "spawn")
    with process_pool(1, int) as pool:
        name = pool.submit(eval, "__import__('multiprocessing').current_process().name").result()
    assert name.startswith("SpawnProcess")


def test_there_is_one_place_that_makes_pools() -> None:
    root = Path(innerloop.__file__).parent
    made = [file.name for file in root.rglob("*.py") if "ProcessPoolExecutor(" in file.read_text("utf-8")]
    assert made == ["starting.py"]
