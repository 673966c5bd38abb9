"""Damaged run files, two writers, reused process numbers, disks and memory that give out: a sentence each."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from innerloop.cli.main import main
from innerloop.core.errors import UserError
from innerloop.experiment.resuming import resume
from innerloop.runs.manifest import actual_status, read_manifest, update_manifest
from innerloop.runs.metrics import read_metrics
from oracles.patience import wait_until

TINY = ["outer.steps=4", "eval.episodes=4", "eval.validation_episodes=2", "outer.batch=2", "model.hidden=[8]"]
TINY += ["run.execution=loop", "run.compile=off", "run.threads=1", "eval.every=2", "run.log_every=1", "-q"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of four steps."""
    folder = tmp_path_factory.mktemp("trained")
    assert main(["train", "sine-maml", *TINY, f"run.folder={folder}"]) == 0
    return next(folder.glob("*/*"))


@pytest.fixture
def run(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same run, stopped before its end, in the runs of an empty folder."""
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "runs" / "sine-maml" / trained.name
    shutil.copytree(trained, made)
    update_manifest(made, status="interrupted")
    return made


def spoil(path: Path, how: str) -> None:
    """Puts something else in the place of a file."""
    path.unlink()
    if how == "folder":
        path.mkdir()
    elif how == "loop":
        path.symlink_to(path.name)
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "bytes":
        path.write_bytes(b"\xff\xfe\x00")
    else:
        path.write_text(how)


DEEP = "[" * 100_000
WRONG = ["folder", "loop", "pipe", "bytes", "", "[]", "3", "null", '"text"', DEEP, "1" * 5000]
FIELDS = [
    {"pid": True},
    {"pid": -1},
    {"pid": 10**30},
    {"pid": "12"},
    {"status": 3},
    {"status": None},
    {"argv": [1, None]},
    {"argv": "train"},
    {"plan": "loop"},
    {"data": []},
    {"started": 5},
    {"reason": ["a"]},
    {"versions": 1},
    {"kind": []},
    {"sizes": {"inputs": 3}},
]


@pytest.mark.parametrize("how", WRONG)
def test_one_damaged_manifest_does_not_hide_the_other_runs(how: str, run: Path, call: Any) -> None:
    other = run.with_name("20200101-000000-s1")
    shutil.copytree(run, other)
    spoil(other / "manifest.json", how)
    code, out, _ = call("ls", "runs", "--json")
    assert code == 0
    rows = json.loads(out)["runs"]
    assert [row["run"] for row in rows if row["status"] == "interrupted"] == [f"runs/sine-maml/{run.name}"]
    assert call("ls", "runs")[0] == 0
    assert call("show", str(other))[0] == (2 if how in ("loop", "pipe") else 0)  # neither is in a run of ours


@pytest.mark.parametrize("fields", FIELDS)
def test_wrong_entries_of_a_manifest_are_told(fields: dict[str, Any], run: Path, call: Any) -> None:
    manifest = {**json.loads((run / "manifest.json").read_text()), "status": "running", **fields}
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert call("ls", "runs")[0] == 0
    assert call("show", str(run))[0] == 0
    assert call("eval", str(run))[0] in (0, 2)


def test_a_manifest_without_a_status_is_no_traceback(run: Path, call: Any) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    del manifest["status"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert read_manifest(run)["status"] == "unknown"
    assert call("show", str(run))[0] == 0
    assert call("resume", str(run), "-q")[0] == 0


@pytest.mark.parametrize("name", ["last.json", "best.json", "state.json", "tensors.safetensors"])
def test_damaged_checkpoints_get_a_sentence(name: str, run: Path, call: Any) -> None:
    path = next((run / "checkpoints").rglob(name))
    kept = path.read_bytes()
    for how in WRONG:
        spoil(path, how)
        code, _, err = call("eval", str(run))
        assert code == 2, (how[:20], err)
        assert "error: " in err
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        path.write_bytes(kept)


POINTERS: list[dict[str, Any]] = [
    {"checkpoint": 3},
    {"checkpoint": "../checkpoints/step-00000004"},
    {"checkpoint": "/etc"},
    {"checkpoint": None},
    {},
]
STATES: list[Any] = [
    3,
    [],
    {},
    {"step": "4"},
    {"step": 4, "best": "x"},
    {"step": 4, "stalled": None},
    {"step": -1},
]


@pytest.mark.parametrize("pointer", POINTERS)
def test_a_pointer_leads_to_a_checkpoint_beside_it_only(
    pointer: dict[str, Any], run: Path, call: Any
) -> None:
    for tag in ("last", "best"):
        (run / "checkpoints" / f"{tag}.json").write_text(json.dumps({**pointer, "step": 4}))
    for verb in ("eval", "resume"):
        code, _, err = call(verb, str(run))
        assert code == 2
        assert "damaged" in err


@pytest.mark.parametrize("state", STATES)
def test_states_without_checksums_are_looked_at(state: Any, run: Path, call: Any) -> None:
    for pointer in (run / "checkpoints").glob("*.json"):
        pointer.write_text(json.dumps({"checkpoint": json.loads(pointer.read_text())["checkpoint"]}))
    for file in (run / "checkpoints").rglob("state.json"):
        file.write_text(json.dumps({"step": 4, "state": state}))
    for verb in ("eval", "resume"):
        code, _, err = call(verb, str(run))
        assert code == 2
        assert "checkpoint" in err


def test_a_damaged_pointer_does_not_stop_a_run_nor_lose_a_checkpoint(run: Path, call: Any) -> None:
    steps = {path.name for path in (run / "checkpoints").glob("step-*")}
    (run / "checkpoints" / "best.json").write_text("[]")
    code, _, _ = call("resume", str(run), "-q")
    assert code == 2  # the best weights cannot be judged, and are named
    assert steps <= {path.name for path in (run / "checkpoints").glob("step-*")}


def test_first_weights_that_are_none(tmp_path: Path, call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, content in enumerate([b"", b"no weights", b"\x08" + bytes(7) + b"{}      ", b"\xff" * 100]):
        Path(f"bad{number}.safetensors").write_bytes(content)
        code, _, err = call("train", "sine-maml", *TINY, f"model.init=bad{number}.safetensors")
        assert code == 2
        assert f"bad{number}.safetensors" in err
        assert not Path("runs").exists()


# ---- two at once, and numbers of processes ----


def test_a_run_has_one_writer(run: Path) -> None:
    outcomes: list[Any] = []
    ready = threading.Barrier(2)

    def one() -> None:
        ready.wait()
        try:
            outcomes.append(resume(run, progress=False).steps)
        except UserError as error:
            outcomes.append(str(error))

    shutil.rmtree(run / "checkpoints")  # all of it is to be trained again
    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused = [outcome for outcome in outcomes if isinstance(outcome, str)]
    assert 4 in outcomes
    assert all("being worked on" in text or "is finished" in text for text in refused)
    assert len(refused) == 1
    steps = [line["step"] for line in read_metrics(run / "metrics.jsonl") if "loss" in line]
    assert steps == sorted(set(steps))


def test_the_lock_names_who_holds_it(run: Path, call: Any) -> None:
    from innerloop.runs.process import sole_writer

    with sole_writer(run):
        code, _, err = call("resume", str(run))
    assert code == 2
    assert f"process {os.getpid()}" in err
    assert call("resume", str(run), "-q")[0] == 0


def test_a_process_that_has_the_number_of_a_killed_one_is_another(run: Path, call: Any) -> None:
    update_manifest(run, status="running")
    manifest = {**read_manifest(run), "pid": os.getppid(), "process_started": 1}
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert actual_status(manifest) == "killed"
    assert actual_status({**manifest, "process_started": None, "boot": "another"}) == "killed"
    assert actual_status({**manifest, "process_started": None, "host": "elsewhere"}) == "running"
    (run / ".lock").unlink()
    assert call("resume", str(run), "-q")[0] == 0


def test_a_run_of_an_earlier_version_can_be_forced(run: Path, call: Any) -> None:
    manifest = {**read_manifest(run), "status": "running", "pid": os.getppid()}
    for name in ("host", "boot", "process_started"):
        manifest.pop(name, None)
    (run / "manifest.json").write_text(json.dumps(manifest))
    (run / ".lock").unlink()
    code, _, err = call("resume", str(run))
    assert code == 2
    assert "--force" in err
    (run / ".lock").unlink()
    assert call("resume", str(run), "--force", "-q")[0] == 0


def test_a_child_ends_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    """As the runs of a sweep do: ``kill -9`` of the parent reaches the child as SIGTERM."""
    child = (
        "import signal, sys, time\nfrom innerloop.core.child_processes import watch_parent\n"
        "def end(*_):\n    open('ended', 'w').close()\n    sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\nwatch_parent(0.01)\nopen('begun', 'w').close()\ntime.sleep(99)\n"
    )
    parent = (
        "import os, subprocess, sys\nfrom innerloop.core.child_processes import ends_with_parent\n"
        f"subprocess.run([sys.executable, '-c', {child!r}], env={{**os.environ, **ends_with_parent()}})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], cwd=tmp_path)
    wait_until(lambda: (tmp_path / "begun").exists())
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    wait_until(lambda: (tmp_path / "ended").exists())


# ---- disks and memory ----


def test_a_full_disk_ends_a_run_with_a_sentence(
    tmp_path: Path, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def full(_path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "runs")

    monkeypatch.setattr("innerloop.runs.checkpoints.sync_file", full)
    code, _, err = call("train", "sine-maml", *TINY)
    assert code == 2
    assert "disk is full" in err
    made = next(Path("runs").glob("*/*"))
    assert "disk is full" in read_manifest(made)["reason"]
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert call("resume", str(made), "-q")[0] == 0


def test_a_disk_on_which_nothing_can_be_written_any_more(
    tmp_path: Path, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    replace, left = os.replace, [3]

    def full(*arguments: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(*arguments)

    monkeypatch.setattr(os, "replace", full)
    code, _, err = call("train", "sine-maml", *TINY)
    assert code == 2
    assert "disk is full" in err


def test_the_tensor_library_says_that_a_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors import SafetensorError

    from innerloop.core import tensors

    def full(*_arguments: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: Os { code: 28, kind: StorageFull }")

    monkeypatch.setattr(tensors, "save_file", full)
    with pytest.raises(OSError, match="code: 28") as caught:
        tensors.write_tensors(tmp_path / "a", {})
    assert caught.value.errno == errno.ENOSPC


def test_a_run_that_may_not_be_written(run: Path, call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def refuse(path: Any, *arguments: Any, **more: Any) -> int:
        if str(path).startswith(str(run)):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return opened(path, *arguments, **more)

    monkeypatch.setattr(os, "open", refuse)
    code, _, err = call("resume", str(run))
    assert code == 2
    assert "may not be read or written" in err
    assert call("ls", "runs")[0] == 0


@pytest.mark.parametrize(
    "setting", ["tasks.shots=1e14", "model.hidden=[10000000000]", "outer.batch=1000000000000"]
)
def test_too_little_memory_is_a_sentence(
    setting: str, tmp_path: Path, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [item for item in TINY if not item.startswith(setting.partition("=")[0])]
    code, _, err = call("train", "sine-maml", *given, setting)
    assert code == 2
    assert "memory" in err
