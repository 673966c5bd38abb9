"""Faults of a machine that are real ones: a disk that is full or read-only, data that go, a clock that jumps.

Disks are mounted for the tests, which only root may do, on Linux; elsewhere those are skipped.
"""

from __future__ import annotations

import datetime as dates
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_kept_data import animals, scores  # noqa: F401 (animals is a fixture)
from test_kept_data import trained as trained_on

from innerloop.cli.main import main
from innerloop.core.errors import UserError
from innerloop.data.store import sweep, workspace
from innerloop.experiment.resuming import resume
from innerloop.runs import directory, manifest, progress
from innerloop.runs.checkpoints import load_checkpoint
from innerloop.runs.directory import list_runs
from innerloop.runs.manifest import read_manifest, update_manifest
from innerloop.runs.metrics import MetricsWriter
from innerloop.testing.closeness import assert_trees_equal
from oracles.patience import PATIENCE
from support.picture_runs import forget_pictures

TINY = ["outer.steps=4", "eval.episodes=4", "eval.validation_episodes=2", "outer.batch=2", "model.hidden=[8]"]
TINY += ["run.execution=loop", "run.compile=off", "run.threads=1", "eval.every=2", "run.log_every=1", "-q"]
KILOBYTE = 1024


def mount(*words: str) -> str:
    """Mounts something; gives why that is not possible here."""
    try:
        done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return done.stderr.strip() or f"exit code {done.returncode}" if done.returncode else ""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, of four megabytes."""
    where = tmp_path / "disk"
    where.mkdir()
    if problem := mount("-t", "tmpfs", "-o", "size=4m", "innerloop-test", str(where)):
        pytest.skip(f"no disk can be mounted here: {problem}")
    yield where
    subprocess.run(["umount", "-l", str(where)], check=True)


def weights(run: Path) -> Any:
    saved = load_checkpoint(run)
    assert saved is not None
    return saved[0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run as it is when nothing happens."""
    folder = tmp_path_factory.mktemp("whole")
    assert main(["train", "sine-maml", *TINY, f"run.folder={folder}"]) == 0
    return list_runs(folder)[0]


def fill(disk: Path, left: int) -> Path:
    """Leaves so many bytes of a disk free."""
    ballast = disk / "ballast"
    free = os.statvfs(disk)
    ballast.write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - left)))
    return ballast


# ---- disks ----


def test_a_disk_that_fills_up_at_any_moment(disk: Path, whole: Path, call: Any) -> None:
    codes = []
    for left in (4, 12, 20, 28, 40, 60, 200):
        folder = disk / f"runs-{left}"
        folder.mkdir()
        ballast = fill(disk, left * KILOBYTE)
        code, _, err = call("train", "sine-maml", *TINY, f"run.folder={folder}")
        codes.append(code)
        assert code == 0 or (code == 2 and "disk is full" in err), (left, err)
        assert all(call("show", str(run))[0] == 0 for run in list_runs(folder))
        made = list_runs(folder)
        if made:
            assert call("eval", str(made[0]))[0] in (0, 2)  # what could not be written has made room
        ballast.unlink()
        if not made:
            assert call("train", "sine-maml", *TINY, f"run.folder={folder}")[0] == 0
        elif code:
            assert call("resume", str(made[0]), "-q")[0] == 0
        assert_trees_equal(weights(list_runs(folder)[-1]), weights(whole))
        shutil.rmtree(folder)
    assert codes.count(2) > 3
    assert codes[-1] == 0


def test_a_conversion_whose_disk_others_fill(disk: Path, call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing to a mapped file on a full disk would end the process with SIGBUS."""
    pictures = disk.parent / "a.npz"
    np.savez(pictures, images=np.ones((2000, 50, 60), np.uint8), labels=np.arange(2000) // 100)
    monkeypatch.setenv("INNERLOOP_DATA", str(disk / "data"))
    code, _, err = call("data", "get", "mine", "--from", str(pictures))
    assert code == 2
    assert "GB free: set INNERLOOP_DATA to a larger disk" in err
    enough = shutil.disk_usage(disk)._replace(free=1 << 40)
    monkeypatch.setattr("innerloop.data.store.shutil.disk_usage", lambda path: enough)
    code, _, err = call("data", "get", "mine", "--from", str(pictures))
    assert code == 2
    assert "the disk is full" in err
    assert list((disk / "data").iterdir()) == []


def test_a_disk_that_may_only_be_read(
    disk: Path, whole: Path, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = disk / "runs" / "sine-maml" / whole.name
    shutil.copytree(whole, run)
    update_manifest(run, status="interrupted")
    monkeypatch.chdir(disk)
    monkeypatch.setenv("INNERLOOP_DATA", str(disk / "data"))
    np.savez(disk / "a.npz", images=np.ones((6, 4, 4), np.uint8), labels=np.arange(6) // 2)
    assert mount("-o", "remount,ro", str(disk)) == ""
    refused = [
        ["train", "sine-maml", *TINY],
        ["resume", str(run), "-q"],
        ["eval", str(run)],
        ["report", str(run)],
        ["sweep", "sine-maml", "seed=[0,1]", *TINY],
        ["data", "get", "mine", "--from", str(disk / "a.npz")],
        ["train", "sine-maml", *TINY, "tasks.family=few-shot", f"data.name={disk / 'a.npz'}"],
    ]
    for words in refused:
        code, _, err = call(*words)
        assert code == 2, (words, err)
        assert err.count("error: ") >= 1, words
    for words in (["ls", "runs"], ["show", str(run)]):
        assert call(*words)[0] == 0
    assert_trees_equal(weights(run), weights(whole))
    assert mount("-o", "remount,rw", str(disk)) == ""
    assert call("resume", str(run), "-q")[0] == 0


# ---- data that go during a run ----


class Unplugged:
    """Does something at a step of a training, where its metrics are written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: int, action: Any) -> None:
        write = MetricsWriter.write

        def written(writer: MetricsWriter, values: Any) -> None:
            write(writer, values)
            if values.get("step") == step and "loss" in values:
                action()

        monkeypatch.setattr(MetricsWriter, "write", written)


def test_data_that_go_during_a_run(
    animals: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    four = {"outer": {"steps": 4, "batch": 2}, "run": {"log_every": 1, "save_every": 1}}
    undisturbed = trained_on(animals, **four)
    away, gone = tmp_path / "away", tmp_path / "store"

    def unplug() -> None:
        animals.rename(away)
        shutil.rmtree(gone)  # what was made of them, too

    with monkeypatch.context() as patch:
        Unplugged(patch, 2, unplug)
        run = trained_on(animals, **four)  # what is mapped stays readable until the end
    assert_trees_equal(weights(run), weights(undisturbed))
    forget_pictures()

    def interrupt() -> None:
        unplug()
        raise KeyboardInterrupt

    away.rename(animals)
    with monkeypatch.context() as patch:
        Unplugged(patch, 2, interrupt)
        with pytest.raises(KeyboardInterrupt):
            trained_on(animals, **four)
    run = list_runs(tmp_path / "runs")[-1]
    assert read_manifest(run)["status"] == "interrupted"
    forget_pictures()
    with pytest.raises(UserError, match="animals"):
        resume(run, progress=False)
    away.rename(animals)
    forget_pictures()
    result = resume(run, progress=False)
    assert result.steps == 4
    assert_trees_equal(weights(run), weights(undisturbed))


# ---- clocks ----


def test_a_clock_that_jumps_changes_no_number(
    tmp_path: Path, whole: Path, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    years = itertools.cycle([0, 30, -30, 5, -1])

    class Jumping(dates.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return dates.datetime.now(tz) + dates.timedelta(days=365 * next(years))

    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3.15e7 * next(years))
    for module in (directory, manifest, progress):
        monkeypatch.setattr(module, "datetime", Jumping)
    with monkeypatch.context() as patch:
        Unplugged(patch, 3, lambda: os.kill(os.getpid(), 15))  # SIGTERM: a checkpoint and 130
        assert call("train", "sine-maml", *TINY, f"run.folder={tmp_path}")[0] == 130
    (run,) = list_runs(tmp_path)
    assert call("resume", str(run), "-q")[0] == 0
    assert call("eval", str(run))[0] == 0
    assert_trees_equal(weights(run), weights(whole))
    assert call("show", str(run))[0] == 0


def test_a_conversion_is_not_cleared_away_because_the_clock_jumped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with workspace(tmp_path / "store") as work:
        monkeypatch.setattr(time, "time", lambda now=time.time: now() + 1e9)
        sweep(tmp_path)
        assert work.is_dir()
    left = tmp_path / f"{work.name}x"
    left.mkdir()  # the same process, but nobody works there
    sweep(tmp_path)
    assert not left.exists()


# ---- memory ----

LIMITED = """
import json, os, resource, sys
import torch, torch._dynamo
import innerloop.experiment.training, innerloop.data.get
from innerloop.cli.main import main

torch.set_num_threads(1)
for words in json.loads(sys.argv[1]):
    pid = os.fork()
    if pid == 0:
        now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + (150 << 20),) * 2)
        os.dup2(2, 1)
        os._exit(main(words))
    os.write(1, f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\\n".encode())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of address space that holds")
def test_a_process_that_runs_out_of_memory(tmp_path: Path) -> None:
    pictures = tmp_path / "a.npz"
    np.savez(pictures, images=np.ones((9000, 160, 160), np.uint8), labels=np.arange(9000) // 100)
    tiny = [item for item in TINY if not item.startswith(("outer.batch", "model.hidden"))]
    commands = [
        ["train", "sine-maml", *tiny, "outer.batch=4000", "model.hidden=[1000,1000]"],
        ["train", "sine-maml", *tiny, "tasks.shots=3000000"],
        ["train", "sine-maml", *tiny, "model.hidden=[9000,9000]"],
        ["data", "get", "mine", "--from", str(pictures)],
        ["train", "sine-maml", *TINY],  # which has enough
    ]
    done = subprocess.run(
        [sys.executable, "-P", "-c", LIMITED, json.dumps(commands)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        | {"INNERLOOP_DATA": str(tmp_path / "data")},
    )
    assert done.stdout.split() == ["2", "2", "2", "2", "0"], done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("there is not enough memory") == 4, done.stderr
