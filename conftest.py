"""Shared fixtures. What is random here names its seed; modules of torch get one for every test."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import innerloop
from innerloop.cli.main import main
from innerloop.core.resources import keep_freed_memory
from innerloop.core.types import TaskBatch
from innerloop.nets import Network, conv4, mlp
from innerloop.training.execution.probes import bfloat16_works, compiler_works
from oracles import problems
from support.drawn import GIVEN, mark_slow, turn
from support.places import DATA

torch.set_num_threads(1)
keep_freed_memory()  # for the next test: fresh pages cost time
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts what runs in its background like that
    signal.signal(signal.SIGINT, signal.default_int_handler)


collect_ignore_glob = ["studies/src/innerloop_studies/bench/jax_*.py"]  # for an environment with JAX in it
os.environ[GIVEN] = str(turn())  # for worker processes: all collect the same
NEEDS = {"bfloat16": bfloat16_works, "compiler": compiler_works}
"""What a test may need from the machine, and how it is found out: in a process of its own, once."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Draws the cases of tests that are marked ``one_in(n)``."""
    mark_slow(items, turn())


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what would fail, or kill the worker, on this machine."""
    for name, works in NEEDS.items():
        if item.get_closest_marker(name) is not None and not (outcome := works()).works:
            pytest.skip(f"{outcome.reason} on this machine")


@pytest.fixture(autouse=True)
def _same_first_weights() -> None:
    """Modules draw their first weights from torch's own generator: a test that fails does so again.

    Nothing of ours may draw from it (``test_nothing_draws_from_torchs_own_generator``).
    """
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Plans set torch's thread count; no test may leave it changed."""
    yield
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data, where it is to be had."""
    named = os.environ.get("INNERLOOP_TEST_DATA")
    folder = Path(named) if named else DATA
    if not folder.is_dir():
        pytest.skip(f"no data at {folder}: set INNERLOOP_TEST_DATA")
    return folder


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that a test starts import this package, and use one thread."""
    homes = [str(Path(innerloop.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, homes)))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test runs in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stores of pictures, and features that are kept, are the test's own."""
    monkeypatch.setenv("INNERLOOP_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """The command in this process: its exit code and what it printed. It may refuse, but never crash."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        shown = capfd.readouterr()
        assert "Traceback" not in shown.err, shown.err
        assert "this is a bug" not in shown.err
        return code, shown.out, shown.err

    return run


@pytest.fixture
def smooth_net() -> Network:
    """A small network without kinks, for finite differences."""
    return mlp(2, [5, 4], 1, activation="tanh")


@pytest.fixture
def small_conv() -> Network:
    """Conv4 on 16×16 pictures."""
    return conv4(1, 16, 3, filters=4)


@pytest.fixture
def regression_batch() -> TaskBatch:
    """Three regression tasks in float64."""
    return problems.regression()


@pytest.fixture
def image_batch() -> TaskBatch:
    """Two 3-way classification tasks of pictures in float64."""
    return problems.images()
