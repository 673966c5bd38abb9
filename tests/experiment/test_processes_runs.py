"""Whole runs with tasks in worker processes: the same bits, also with a killed worker and an interrupt."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from innerloop.core.child_processes import start_method
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.results import TrainResult
from innerloop.experiment.training import train
from innerloop.runs.checkpoints import load_checkpoint
from innerloop.runs.manifest import read_manifest
from innerloop.runs.metrics import read_metrics
from innerloop.testing.closeness import assert_trees_equal
from oracles.patience import PATIENCE, wait_until

pytestmark = pytest.mark.skipif(start_method() != "fork", reason="starting afresh takes seconds")

TINY = ["outer.batch=3", "model.hidden=[5]", "eval.episodes=5", "eval.validation_episodes=3"]
TINY += ["run.log_every=1"]
TWO = ["run.execution=processes", "run.threads=2"]
ONE = ["run.execution=loop", "run.threads=1"]


def trained(folder: Path, *settings: str) -> TrainResult:
    return train(load_recipe("sine-maml", [*TINY, *settings, f"run.folder={folder}"]), progress=False)


def last(run: Path) -> dict[str, torch.Tensor]:
    saved = load_checkpoint(run, "last")
    assert saved is not None
    return saved[0]


def test_a_run_in_processes_is_the_run_in_a_loop(tmp_path: Path) -> None:
    actual, expected = (
        trained(tmp_path / how[0], "outer.steps=8", "eval.every=4", *how) for how in (TWO, ONE)
    )
    assert actual.plan is not None
    assert actual.plan.mode == "processes"
    runs = [result.run for result in (actual, expected)]
    assert_trees_equal(*map(last, runs))
    told = [
        [(r["step"], r.get("loss"), r.get("validation")) for r in read_metrics(run / "metrics.jsonl")]
        for run in runs
    ]
    assert told[0] == told[1]
    scores = [json.loads(result.evaluation.file.read_text())["scores"] for result in (actual, expected)]
    assert scores[0] == scores[1]


def children(pid: int) -> set[int]:
    """Processes that another one has started, and that have not ended."""
    pids = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == pid and state != "Z":
            pids.add(int(stat.parent.name))
    return pids


def steps_done(folder: Path) -> int:
    return sum(file.read_text().count('"loss"') for file in folder.glob("*/*/metrics.jsonl"))


@pytest.mark.slow
def test_a_killed_worker_and_an_interrupt_of_all_leave_a_whole_checkpoint(tmp_path: Path) -> None:
    settings = [*TINY, *TWO, "outer.steps=1000000", "eval.every=1000000", f"run.folder={tmp_path}"]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "innerloop", "train", "sine-maml", *settings],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of its own, which gets the interrupt as a terminal's would
    )
    wait_until(lambda: process.poll() is not None or steps_done(tmp_path) > 2)
    workers = children(process.pid)
    assert len(workers) == 2
    killed = min(workers)
    os.kill(killed, signal.SIGKILL)
    before = steps_done(tmp_path)
    wait_until(lambda: process.poll() is not None or steps_done(tmp_path) > before + 2)
    workers |= children(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    said = f"(process {killed}) was ended by SIGKILL"
    assert said in err
    assert "Traceback" not in err
    assert "Warning:" not in err  # one line for people, without a place in our source
    assert len(workers) == 3
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    (run,) = tmp_path.glob("*/*")
    assert said in (run / "log.txt").read_text()
    assert read_manifest(run)["status"] == "interrupted"
    saved = load_checkpoint(run, "last")
    assert saved is not None
    step = int(saved[1]["step"])
    again = trained(tmp_path / "loop", *ONE, f"outer.steps={step}", "eval.every=1000000")
    assert_trees_equal(saved[0], last(again.run))
