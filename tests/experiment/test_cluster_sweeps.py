"""Sweeps on a Dask cluster of real processes: as one process has them, whoever is killed on the way."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from innerloop.cli.main import main
from innerloop.core.files import read_json
from innerloop.experiment.sweeps.sweep import sweep
from innerloop.runs.manifest import read_manifest
from oracles.patience import wait_until
from support.clusters import dask_cluster
from support.commands import TINY, answer, finish, start

pytestmark = [
    pytest.mark.usefixtures("own_folder"),
    pytest.mark.skipif(sys.platform != "linux", reason="kills processes"),
]

SMALL = [item for item in TINY if not item.startswith("outer.steps")]
GRID = ["inner.lr=[0.001,0.01]", "inner.steps=1", "run.save_every=2", "run.log_every=1", *SMALL]


def numbers(table: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["settings"], row["mean"], row["ci95"], row["validation"]) for row in table]


def scores(runs: list[str]) -> list[Any]:
    """Every score of every test task."""
    return [read_json(next(Path(run).glob("eval/*.json")))["scores"] for run in runs]


def under_way(folder: str, least: int = 5) -> list[Path]:
    files = Path(folder).glob("*/*/*/metrics.jsonl")
    return [file.parent for file in files if file.read_text().count("\n") > least]


def test_a_cluster_gives_what_this_machine_gives(tmp_path: Path) -> None:
    grid = [*GRID, "outer.steps=4", "eval.every=2"]
    alone = sweep("sine-maml", [*grid, "run.folder=alone"], jobs=2, progress=False).as_dict()
    with dask_cluster(tmp_path / "dask") as dask:
        there = sweep(
            "sine-maml", [*grid, "run.folder=there"], cluster=dask.address, progress=False
        ).as_dict()
    assert numbers(there["table"]) == numbers(alone["table"])
    assert scores(there["runs"]) == scores(alone["runs"])


def test_a_cluster_that_does_not_answer_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("innerloop.runs.cluster.ANSWER", 0.5)
    assert main(["sweep", "sine-maml", *GRID, "--cluster", "tcp://127.0.0.1:1"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "no Dask scheduler answers at tcp://127.0.0.1:1" in line
    assert not Path("runs").exists()


@pytest.mark.slow
def test_a_worker_and_then_the_leader_are_killed(tmp_path: Path) -> None:
    grid = [*GRID, "outer.steps=600", "eval.every=300"]
    alone = sweep("sine-maml", [*grid, "run.folder=alone"], jobs=2, progress=False).as_dict()
    with dask_cluster(tmp_path / "dask", workers=2) as dask:
        words = ["sweep", "sine-maml", *grid, "run.folder=there", "--cluster", dask.address]
        leader = start(*words)
        wait_until(lambda: leader.poll() is not None or len(under_way("there")) == 2)
        os.kill(dask.processes[-1].pid, signal.SIGKILL)
        dask.worker()
        wait_until(lambda: leader.poll() is not None or len(under_way("there", 100)) == 2)
        leader.kill()
        leader.communicate()
        code, out, err = finish(start(*words, "--json"))
        assert code == 0, err
    there = answer(out)
    assert numbers(there["table"]) == numbers(alone["table"])
    assert scores(there["runs"]) == scores(alone["runs"])
    assert len(list(Path("there").glob("*/*/*/manifest.json"))) == 2  # all went on in their directories
    assert {read_manifest(Path(run))["status"] for run in there["runs"]} == {"finished"}


@pytest.mark.slow
def test_an_interrupt_leaves_checkpoints(tmp_path: Path) -> None:
    with dask_cluster(tmp_path / "dask") as dask:
        words = ["sweep", "sine-maml", *GRID, "outer.steps=100000", "eval.every=100000"]
        leader = start(*words, "--cluster", str(dask.file))
        wait_until(lambda: leader.poll() is not None or len(under_way("runs")) == 1)
        leader.send_signal(signal.SIGTERM)
        code, _, err = finish(leader)
        assert code == 130, err
        (run,) = under_way("runs")
        assert read_manifest(run)["status"] == "interrupted"
