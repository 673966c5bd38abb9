"""Ranks as processes: started by ``run.ranks`` or ``torchrun``, killed, stopped, and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from innerloop.cli import launch as cli_launch
from innerloop.cli.main import main
from innerloop.experiment.fitting import fit_parts, judge, validation_of
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.library import load_recipe
from innerloop.runs.checkpoints import load_checkpoint
from innerloop.runs.manifest import read_manifest
from innerloop.runs.metrics import read_metrics
from innerloop.testing.closeness import assert_trees_equal
from innerloop.training import Plan, TrainState
from innerloop.training.state import state_from
from oracles import ranks_that_hang
from oracles.patience import PATIENCE, wait_until
from oracles.rank_threads import in_ranks

SETTINGS = [
    *("model.hidden=[5]", "run.dtype=float64", "run.execution=loop", "run.compile=off", "run.threads=1"),
    *("outer.steps=60", "outer.batch=3", "outer.clip=2", "inner.steps=1", "inner.test_steps=1"),
    *("eval.every=20", "eval.validation_episodes=4", "eval.episodes=10", "eval.weights=last"),
    *("run.log_every=1", "run.save_every=10"),
]


def undisturbed(ranks: int, patch: pytest.MonkeyPatch) -> tuple[TrainState, list[float]]:
    """The same on ranks that are threads. Two numbers have one sum, so it is the same bit for bit."""
    parts, plan = Parts(load_recipe("sine-maml", SETTINGS)), Plan("loop", 1, ranks=ranks)
    assert parts.params

    def work(rank: int) -> tuple[TrainState, list[float]]:
        state = fit_parts(parts, plan=plan, validation=validation_of(parts, plan))
        return state, judge(parts, state.params, state.buffers, "test", 10, plan).scores

    return in_ranks(ranks, work, patch)[0]


def only_run(folder: Path) -> Path:
    (run,) = (path.parent for path in folder.glob("*/*/recipe.toml"))
    return run


def check_whole(run: Path, expected: tuple[TrainState, list[float]]) -> None:
    """The run is finished, and as if nothing had happened."""
    manifest = read_manifest(run)
    assert (manifest["status"], manifest["ranks"]) == ("finished", 2)
    saved = load_checkpoint(run, "last")
    assert saved is not None
    assert_trees_equal(state_from(*saved).tensors(), expected[0].tensors())
    (file,) = (run / "eval").iterdir()
    assert json.loads(file.read_text())["scores"] == expected[1]
    steps = [record["step"] for record in read_metrics(run / "metrics.jsonl") if "loss" in record]
    assert steps == list(range(1, 61))  # one line a step, from rank 0


class Watched:
    """Keeps the processes that are started, and does things to them once the run is far enough."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.started, self.told = folder, [], []
        popen = subprocess.Popen

        def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
            self.started.append(popen(*arguments, **options))
            return self.started[-1]

        monkeypatch.setattr(cli_launch.subprocess, "Popen", start)

    def steps(self) -> int:
        files = list(self.folder.glob("*/*/metrics.jsonl"))
        return max((r["step"] for f in files for r in read_metrics(f)), default=0)

    def at_step(self, step: int, action: Callable[[], None]) -> threading.Thread:
        def wait() -> None:
            wait_until(lambda: self.steps() >= step)
            action()
            self.told.append(step)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        return thread


@pytest.mark.slow
def test_a_killed_rank_changes_nothing(
    tmp_path: Path, environment: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = undisturbed(2, monkeypatch)
    watched = Watched(tmp_path, monkeypatch)
    killer = watched.at_step(3, lambda: watched.started[1].send_signal(signal.SIGKILL))
    arguments = [
        "train",
        "sine-maml",
        *SETTINGS,
        "run.ranks=2",
        f"run.folder={tmp_path}",
        "--json",
        "--quiet",
    ]
    assert cli_launch.launch(arguments, 2) == 0
    killer.join(PATIENCE)
    assert watched.told == [3]
    assert len(watched.started) == 4  # two ranks, twice
    out, err = capfd.readouterr()
    assert json.loads(out)["run"] == str(only_run(tmp_path))  # one answer, from the attempt that finished
    assert f"rank 1 (process {watched.started[1].pid} on " in err
    assert "all start again from the last checkpoint (1 of 3)" in err
    check_whole(only_run(tmp_path), expected)


@pytest.mark.slow
def test_a_killed_leader_and_a_stopped_rank_change_nothing(
    tmp_path: Path, environment: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = undisturbed(2, monkeypatch)
    watched = Watched(tmp_path, monkeypatch)
    watched.at_step(20, lambda: watched.started[0].send_signal(signal.SIGKILL))
    watched.at_step(40, lambda: watched.started[3].send_signal(signal.SIGSTOP))
    arguments = ["train", "sine-maml", *SETTINGS, "run.rank_timeout=60", f"run.folder={tmp_path}", "--quiet"]
    assert cli_launch.launch(arguments, 2) == 0
    assert sorted(watched.told) == [20, 40]
    assert len(watched.started) == 6
    pid = watched.started[3].pid
    assert f"rank 1 (process {pid} on " in (err := capfd.readouterr().err)
    assert "did not answer for 60 seconds" in err
    check_whole(only_run(tmp_path), expected)


@pytest.mark.slow
def test_ranks_with_worker_processes_of_their_own_give_the_same_bits(
    tmp_path: Path, environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = undisturbed(2, monkeypatch)
    own = ["run.execution=processes", "run.threads=2", f"run.folder={tmp_path}", "--quiet"]
    others = [setting for setting in SETTINGS if not setting.startswith(("run.execution", "run.threads"))]
    assert cli_launch.launch(["train", "sine-maml", *others, *own], 2) == 0
    assert read_manifest(only_run(tmp_path))["plan"]["mode"] == "processes"
    check_whole(only_run(tmp_path), expected)


@pytest.mark.slow
def test_ctrl_c_saves_once_and_resume_goes_on(
    tmp_path: Path, environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = undisturbed(2, monkeypatch)
    watched = Watched(tmp_path, monkeypatch)
    watched.at_step(20, lambda: os.kill(os.getpid(), signal.SIGINT))
    arguments = ["train", "sine-maml", *SETTINGS, "run.ranks=2", f"run.folder={tmp_path}", "--quiet"]
    assert cli_launch.launch(arguments, 2) == 130
    assert len(watched.started) == 2
    run = only_run(tmp_path)
    assert read_manifest(run)["status"] == "interrupted"
    assert cli_launch.launch(["resume", str(run), "--quiet"], 2) == 0
    check_whole(run, expected)


@pytest.mark.slow
def test_torchrun_starts_and_restarts_it(
    tmp_path: Path, environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = undisturbed(2, monkeypatch)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += ["--max-restarts=2", "-m", "innerloop", "train", "sine-maml", *SETTINGS]
    watched = Watched(tmp_path, monkeypatch)

    def kill_a_rank() -> None:
        leader = read_manifest(only_run(tmp_path))["pid"]
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        os.kill(next(int(child) for child in children if int(child) != leader), signal.SIGKILL)

    with subprocess.Popen([*command, f"run.folder={tmp_path}", "--quiet"], stderr=subprocess.DEVNULL) as job:
        watched.at_step(20, kill_a_rank)
        assert job.wait(PATIENCE) == 0
    assert watched.told == [20]
    check_whole(only_run(tmp_path), expected)


@pytest.mark.slow
def test_the_rank_that_hangs_is_named_and_a_late_one_is_not(tmp_path: Path, environment: None) -> None:
    ranks, silent, late = 4, 2, 3
    command = [sys.executable, ranks_that_hang.__file__]
    more = [str(ranks), str(tmp_path / "store"), str(silent), str(late)]
    started = [
        subprocess.Popen([*command, str(rank), *more], stdout=subprocess.PIPE, text=True)
        for rank in range(ranks)
    ]
    try:
        told = [started[rank].communicate(timeout=PATIENCE)[0] for rank in (0, 1)]
    finally:
        for process in started:
            process.kill()
            process.wait()
    name = f"rank {silent} (process {started[silent].pid} on "
    assert [name in text and "did not answer for 8 seconds" in text for text in told] == [True, True], told


def test_a_mistake_is_told_before_ranks_are_started(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    started: list[tuple[list[str], int]] = []
    monkeypatch.setattr(cli_launch, "launch", lambda *given: started.append(given) or 7)
    assert main(["train", "sine-maml", "run.ranks=0"]) == 2
    assert main(["train", "sine-maml", "run.ranks=2", "inner.stpes=3"]) == 2
    assert capfd.readouterr().err.count("error:") == 2
    assert started == []
    command = ["train", "sine-maml", "run.ranks=2"]
    assert main(command) == 7  # whatever the ranks end with
    assert started == [(command, 2)]
