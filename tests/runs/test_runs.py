"""The run directory: names, manifest, checkpoints that survive kill -9, metrics, progress."""

from __future__ import annotations

import importlib
import io
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

import pytest
import torch

from innerloop.core.errors import UserError
from innerloop.core.files import read_json, write_json_atomic, write_text_atomic
from innerloop.core.interrupts import SIGNALS, defer_interrupts, interrupt_on_signals
from innerloop.runs import progress as progress_module
from innerloop.runs.checkpoints import (
    DamagedCheckpointError,
    checkpoint_step,
    load_checkpoint,
    save_checkpoint,
)
from innerloop.runs.directory import RECIPE, create_run, find_run, list_runs
from innerloop.runs.manifest import read_manifest, start_manifest, update_manifest
from innerloop.runs.metrics import MetricsWriter, read_metrics, truncate_after
from innerloop.runs.progress import RunLog, progress
from oracles.patience import PATIENCE

NOON = datetime(2026, 1, 2, 12, 0, 0)


# ---- files ----


def test_json_is_strict_and_leaves_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json_atomic(
        path, {"nan": math.nan, "inf": [math.inf], "t": torch.tensor([1.0, math.nan]), "p": tmp_path}
    )
    assert read_json(path) == {"nan": None, "inf": [None], "t": [1.0, None], "p": str(tmp_path)}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text_atomic(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text_atomic(path, "new \ud800")
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_files_are_as_readable_as_ordinary_ones(tmp_path: Path) -> None:
    (tmp_path / "ordinary").write_text("")
    write_text_atomic(tmp_path / "ours", "")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


# ---- directories ----


def make_run(folder: Path, name: str, seed: int, second: int) -> Path:
    run = create_run(folder, name, seed, NOON.replace(second=second))
    start_manifest(run, ["innerloop"], "", {})
    return run


def test_run_names_never_repeat(tmp_path: Path) -> None:
    names = [create_run(tmp_path, "sine", 3, NOON).relative_to(tmp_path).as_posix() for _ in range(3)]
    assert names == [f"sine/20260102-120000-s3{tail}" for tail in ("", "-2", "-3")]


def test_run_names_stay_inside_the_folder(tmp_path: Path) -> None:
    for name in ("../../evil", "a/b", "..", "", "späß 1"):
        run = create_run(tmp_path / "runs", name, 0, NOON)
        assert run.resolve().parent.parent == (tmp_path / "runs").resolve()


def test_a_folder_that_cannot_be_made_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(UserError, match="set folder elsewhere"):
        create_run(tmp_path / "runs", "sine", 0)


def test_runs_are_listed_by_age_and_found_by_prefix(tmp_path: Path) -> None:
    first, second = make_run(tmp_path, "b", 0, 1), make_run(tmp_path, "a", 0, 2)
    (tmp_path / "a" / "not-a-run").mkdir()
    assert list_runs(tmp_path) == [first, second]
    assert find_run("last", tmp_path) == second
    assert find_run("b", tmp_path) == first
    assert find_run("20260102-120001", tmp_path) == first
    assert find_run("a/2026", tmp_path) == second
    assert find_run(str(second), Path("elsewhere")) == second
    assert find_run(str(second / "manifest.json"), Path("elsewhere")) == second


def test_of_runs_of_one_second_the_last_is_the_one_that_began_last(tmp_path: Path) -> None:
    for at, name in enumerate(("b", "a")):
        run = make_run(tmp_path, name, 0, 1)
        (run / RECIPE).touch()
        os.utime(run / RECIPE, (100.0 + at / 10,) * 2)
    assert find_run("last", tmp_path) == run


def test_a_name_that_begins_another_is_still_found(tmp_path: Path) -> None:
    plain = make_run(tmp_path, "a", 1, 1)
    longer = make_run(tmp_path, "a", 12, 1)
    assert find_run("a/20260102-120001-s1", tmp_path) == plain
    assert find_run("20260102-120001-s12", tmp_path) == longer


def test_unfound_runs_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="innerloop train sine-maml"):
        find_run("last")
    make_run(Path("runs"), "sine-maml", 0, 1)
    make_run(Path("runs"), "sine-maml", 0, 2)
    with pytest.raises(UserError, match="names 2 runs"):
        find_run("sine")
    with pytest.raises(UserError, match="names 2 runs"):
        find_run("runs/sine-maml/")
    Path("runs").rename("elsewhere")
    with pytest.raises(UserError, match=r"not a run.*try elsewhere/sine-maml/20260102-120002-s0"):
        find_run("elsewhere/sine-maml")
    Path("elsewhere").rename("runs")
    with pytest.raises(UserError, match=r"no run 'zebra'.*the newest are sine-maml/20260102-120002-s0"):
        find_run("zebra")
    with pytest.raises(UserError, match="no run ''"):
        find_run("")


# ---- manifest ----


def test_manifest_tells_what_ran_and_how_it_ended(tmp_path: Path) -> None:
    start_manifest(tmp_path, ["innerloop", "train"], "text", {"device": "cpu", "plan": {"mode": "vmap"}})
    manifest = read_manifest(tmp_path)
    assert manifest["status"] == "running"
    assert manifest["ended"] is None
    assert manifest["versions"]["torch"] == torch.__version__
    assert manifest["plan"] == {"mode": "vmap"}
    update_manifest(tmp_path, status="failed", reason="because")
    ended = read_manifest(tmp_path)
    assert (ended["status"], ended["reason"]) == ("failed", "because")
    assert datetime.fromisoformat(ended["ended"]) >= datetime.fromisoformat(ended["started"])
    again = update_manifest(tmp_path, status="running")
    assert again["ended"] is None
    assert again["reason"] is None


def test_damaged_manifest_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(UserError, match="edited by hand"):
        read_manifest(tmp_path)


def test_light_files_do_not_import_torch() -> None:
    code = (
        "import sys, innerloop.runs.directory, innerloop.core.files, innerloop.runs.manifest,"
        " innerloop.runs.metrics, innerloop.runs.checkpoints, innerloop.runs.progress;"
        " print('torch' in sys.modules)"
    )
    shown = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, env=child_env()
    )
    assert shown.stdout.strip() == "False"


# ---- checkpoints ----


def awkward_tensors() -> dict[str, torch.Tensor]:
    base = torch.arange(12, dtype=torch.float64).reshape(3, 4)
    return {
        "0-dim": torch.tensor(math.pi, dtype=torch.float64),
        "transposed": base.t(),
        "view": base[:, 1],
        "same memory": base[:, 1],
        "int64": torch.tensor([2**62 + 1]),
        "bytes": torch.get_rng_state(),
        "bool": torch.tensor([True, False]),
        "empty": torch.empty(0, 3),
        "needs grad": torch.ones(2, requires_grad=True),
        "special": torch.tensor([math.nan, math.inf, -0.0]),
    }


def test_checkpoint_returns_every_bit(tmp_path: Path) -> None:
    tensors = awkward_tensors()
    state = {
        "a": 0.1 + 0.2,
        "best": math.inf,
        "nan": math.nan,
        "nested": {"x": [1, (2, None, True)]},
        "step": 7,
    }
    save_checkpoint(tmp_path, 7, tensors, state)
    loaded = load_checkpoint(tmp_path)
    assert loaded is not None
    for name, tensor in tensors.items():
        assert loaded[0][name].dtype == tensor.dtype
        assert loaded[0][name].shape == tensor.shape
        assert loaded[0][name].numpy().tobytes() == tensor.detach().contiguous().numpy().tobytes()
    assert loaded[0].keys() == tensors.keys()
    assert math.isnan(loaded[1].pop("nan"))
    assert loaded[1] == {"a": 0.1 + 0.2, "best": math.inf, "nested": {"x": [1, [2, None, True]]}, "step": 7}
    assert checkpoint_step(tmp_path) == 7


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path) is None
    assert checkpoint_step(tmp_path) is None
    save_checkpoint(tmp_path, 1, {}, {})
    assert load_checkpoint(tmp_path) == ({}, {})
    assert load_checkpoint(tmp_path, "best") is None


def test_exactly_what_tags_name_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    for step, tags in ((1, ("last", "best")), (2, ("last",)), (3, ("last",)), (3, ("last",))):
        save_checkpoint(tmp_path, step, {"step": torch.tensor(step)}, {}, tags)
    (folder / ".tmp-stale").mkdir()
    (folder / "..last.json-x.tmp").write_text("half")
    save_checkpoint(tmp_path, 4, {"step": torch.tensor(4)}, {})
    assert {p.name for p in folder.iterdir()} == {"best.json", "last.json", "step-00000001", "step-00000004"}
    best = load_checkpoint(tmp_path, "best")
    assert best is not None
    assert best[0]["step"] == 1


def test_a_step_saved_twice_is_the_second_one(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        save_checkpoint(tmp_path, 5, {"w": torch.tensor(value)}, {})
    loaded = load_checkpoint(tmp_path)
    assert loaded is not None
    assert loaded[0]["w"] == 2.0


def test_state_that_is_not_plain_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="put tensors in `tensors`"):
        save_checkpoint(tmp_path, 1, {}, {"w": torch.ones(1)})
    assert load_checkpoint(tmp_path) is None
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_damaged_checkpoints_are_user_errors(tmp_path: Path) -> None:
    where = save_checkpoint(tmp_path, 1, {"w": torch.ones(8)}, {})
    whole = (where / "tensors.safetensors").read_bytes()
    (where / "tensors.safetensors").write_bytes(whole[:-5])
    with pytest.raises(UserError, match="damaged"):
        load_checkpoint(tmp_path)
    (where / "tensors.safetensors").unlink()
    with pytest.raises(UserError, match="gone"):
        load_checkpoint(tmp_path)


def flip(path: Path, at: int) -> None:
    """One bit of a file, counted from its end."""
    content = bytearray(path.read_bytes())
    content[-at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(("file", "at"), [("tensors.safetensors", 3), ("state.json", 80)])
def test_one_flipped_bit_is_noticed_and_the_other_checkpoint_is_named(
    tmp_path: Path, file: str, at: int
) -> None:
    save_checkpoint(tmp_path, 3, {"w": torch.ones(8)}, {"step": 3, "rate": 0.125}, ("last", "best"))
    where = save_checkpoint(tmp_path, 5, {"w": torch.ones(8)}, {"step": 5, "rate": 0.125})
    flip(where / file, at)
    with pytest.raises(DamagedCheckpointError, match=r"SHA-256 differs.*'best' \(step 3\) is whole") as error:
        load_checkpoint(tmp_path)
    assert "\n" not in str(error.value)
    command = str(error.value).split("`")[1]
    subprocess.run(command, shell=True, check=True)
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint[1]["step"] == 3


def test_without_another_whole_checkpoint_a_new_start_is_named(tmp_path: Path) -> None:
    where = save_checkpoint(tmp_path, 5, {"w": torch.ones(8)}, {}, ("last", "best"))
    flip(where / "tensors.safetensors", 1)
    for tag in ("last", "best"):
        with pytest.raises(UserError, match="there is no other one, so train it again"):
            load_checkpoint(tmp_path, tag)


def test_checkpoints_from_before_checksums_load(tmp_path: Path) -> None:
    where = save_checkpoint(tmp_path, 5, {"w": torch.ones(8)}, {"step": 5})
    state = {"step": 5, "state": {"step": 5}}
    (where / "state.json").write_text(json.dumps(state))
    (tmp_path / "checkpoints" / "last.json").write_text(json.dumps({"checkpoint": where.name, "step": 5}))
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint[1] == {"step": 5}


STORM = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from innerloop.runs.checkpoints import load_checkpoint, save_checkpoint

run, kills, draw = Path(sys.argv[1]), int(sys.argv[2]), random.Random(0)

def save(step):
    tensors = {f"w{i}": torch.full((50,), float(step)) for i in range(4)}
    save_checkpoint(run, step, tensors, {"step": step}, ("last", "best") if step % 3 == 0 else ("last",))

def save_for_ever(report):
    step = load_checkpoint(run)[1]["step"]
    while True:
        step += 1
        save(step)
        os.write(report, f"{step}\\n".encode())

def whole(tag, at_least):
    tensors, state = load_checkpoint(run, tag)
    assert state["step"] >= at_least, (tag, state, at_least)
    assert len(tensors) == 4 and all((w == state["step"]).all() for w in tensors.values()), (tag, state)
    return state["step"]

started = time.monotonic()
for reached in (1, 2, 3):
    save(reached)
usual = (time.monotonic() - started) / 3  # where in a save the kill falls is left to chance, and only that
for kill in range(kills):
    end, report = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        save_for_ever(report)
    os.close(report)
    with os.fdopen(end) as file:
        returned = [file.readline() for _ in range(kill % 4)]  # it lives for zero to three saves and a bit
        time.sleep(draw.uniform(0, 2 * usual))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        returned += file.read().splitlines()
    assert len(returned) >= kill % 4
    reached = whole("last", max(reached, int(returned[-1]) if returned else 0))
    assert whole("best", reached // 3 * 3) % 3 == 0
print(reached)
"""


def child_env() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


@pytest.mark.slow
def test_kill_9_storm_on_save_checkpoint(tmp_path: Path) -> None:
    """Whatever save returned before the kill is still there, whole, and the next process goes on from it."""
    command = [sys.executable, "-P", "-c", STORM, str(tmp_path), "30"]
    done = subprocess.run(command, capture_output=True, text=True, env=child_env(), timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 3 + sum(kill % 4 for kill in range(30))  # those that were waited for
    left = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    save_checkpoint(tmp_path, int(done.stdout) + 1, {}, {}, ("last", "best"))
    after = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    kept = after - {"last.json", "best.json"}
    # a step saved again after a kill between its naming and its pointer gets a number behind it
    assert len(kept) == 1, left
    assert kept.pop().startswith(f"step-{int(done.stdout) + 1:08d}"), left


def test_kill_between_any_two_file_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the save at its n-th system call, for every n: what is read is the old or the new one, whole."""

    class Killed(BaseException):
        pass

    left = [0]

    def counted(call):  # type: ignore[no-untyped-def]
        def wrapper(*args, **kwargs):  # type: ignore[no-untyped-def]
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return call(*args, **kwargs)

        return wrapper

    tags = ("last", "best")
    save_checkpoint(tmp_path, 1, {"w": torch.tensor(1.0)}, {"step": 1}, tags)
    with monkeypatch.context() as patch:
        for name in ("fsync", "rename", "replace", "mkdir", "unlink", "rmdir", "open"):
            patch.setattr(os, name, counted(getattr(os, name)))
        # a kill runs no clean-up code
        patch.setattr("innerloop.runs.checkpoints.shutil.rmtree", counted(__import__("shutil").rmtree))
        for allowed in range(200):
            left[0] = allowed
            try:
                step = allowed + 2
                save_checkpoint(tmp_path, step, {"w": torch.tensor(float(step))}, {"step": step}, tags)
                finished = True
            except Killed:
                finished = False
            left[0] = 10**9
            checkpoint = load_checkpoint(tmp_path)
            assert checkpoint is not None
            assert float(checkpoint[0]["w"]) == checkpoint[1]["step"]
            best = load_checkpoint(tmp_path, "best")
            assert best is not None
            assert best[1]["step"] >= checkpoint[1]["step"]  # a resumed run finds the best that it knows of
            if finished:
                assert checkpoint[1]["step"] == allowed + 2
                break
        else:
            pytest.fail("the save never finished")
        assert allowed > 5


# ---- interrupts ----


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_for_the_end_of_a_step(kind: signal.Signals) -> None:
    handlers = [signal.getsignal(number) for number in SIGNALS]
    steps = []

    def train() -> None:
        with defer_interrupts() as check:
            for step in range(5):
                check()
                if step == 2:
                    os.kill(os.getpid(), kind)
                steps.append(step)  # the rest of the step is done

    with pytest.raises(KeyboardInterrupt):
        train()
    assert steps == [0, 1, 2]
    assert [signal.getsignal(number) for number in SIGNALS] == handlers


def test_a_second_interrupt_does_not_wait() -> None:
    reached = []

    def train() -> None:
        with defer_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("after the first")
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("after the second")

    with pytest.raises(KeyboardInterrupt):
        train()
    assert reached == ["after the first"]


def test_an_interrupt_in_the_last_step_is_not_lost() -> None:
    with pytest.raises(KeyboardInterrupt), defer_interrupts():
        os.kill(os.getpid(), signal.SIGINT)


def test_other_threads_are_left_alone() -> None:
    def work() -> None:
        with defer_interrupts() as check:
            check()
            done.append(True)

    done: list[bool] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_for_the_end_of_an_import(
    kind: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The C code of a module that is interrupted may say that it could not be imported."""
    text = f"import os, time\nos.kill(os.getpid(), {int(kind)})\ntime.sleep(0.2)\nWHOLE = True\n"
    (tmp_path / "interrupted_by_itself.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupt_on_signals()
        with pytest.raises(KeyboardInterrupt):
            _import_and_wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert sys.modules.pop("interrupted_by_itself").WHOLE


def _import_and_wait() -> None:
    importlib.import_module("interrupted_by_itself")
    time.sleep(PATIENCE)


# ---- metrics ----


def test_metrics_are_strict_lines_and_survive_a_torn_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_metrics(path) == []
    with MetricsWriter(path) as writer:
        writer.write({"step": 1, "loss": torch.tensor(0.5)})
        assert json.loads(path.read_text()) == {"step": 1, "loss": 0.5}  # flushed
        writer.write({"step": 2, "loss": math.nan})
    with path.open("a") as file:
        file.write('{"step": 3, "lo')
    assert read_metrics(path) == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": None}]
    with MetricsWriter(path) as writer:
        writer.write({"step": 3, "loss": 0.25})
    assert [record["step"] for record in read_metrics(path)] == [1, 2, 3]


def test_truncate_drops_later_steps(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    truncate_after(path, 3)
    with MetricsWriter(path) as writer:
        for step in (1, 2, 3, 3, 4):
            writer.write({"step": step})
        writer.write({"note": "no step"})
    with path.open("ab") as file:
        file.write(b'{"step": "\xc3')
    truncate_after(path, 3)
    assert read_metrics(path) == [{"step": 1}, {"step": 2}, {"step": 3}, {"step": 3}, {"note": "no step"}]


def test_damage_in_the_middle_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\nhello\n{"step": 2}\n')
    with pytest.raises(UserError, match="line 2"):
        read_metrics(path)


def test_tensorboard_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    with MetricsWriter(tmp_path / "metrics.jsonl", tensorboard=True) as writer:
        writer.write({"step": 1, "loss": 0.5, "score": "mse"})
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 0.5)]


def test_missing_tensorboard_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"pip install 'innerloop\[tensorboard\]'"):
        MetricsWriter(tmp_path / "metrics.jsonl", tensorboard=True)


# ---- progress ----


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_progress_is_sparse_and_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: clock[0])
    log = RunLog(tmp_path / "log.txt")
    with progress(1000, "training", log=log) as bar:
        bar.line("mode vmap")
        for step in range(1, 1001):
            clock[0] += 0.125  # exact in binary; a line is due every 10 s, that is 80 steps
            bar.update(step, loss=1 / step)
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert lines[0] == "mode vmap"
    assert lines[1].startswith("training 80/1000  loss 0.0125  8 steps/s  1 min 55 s left")
    assert lines[-1].startswith("training 1000/1000  loss 0.001  8 steps/s")
    assert len(lines) == 14
    logged = (tmp_path / "log.txt").read_text().splitlines()
    assert [line[21:] for line in logged] == lines
    datetime.fromisoformat(logged[0][:19])


def test_the_pace_counts_what_was_done_now(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: clock[0])
    with progress(10, "sweep", unit="runs") as bar:
        for done in range(1, 6):
            bar.update(done, True)  # found finished, at once
        for done, after in ((6, 20.0), (7, 0.01), (8, 20.0), (9, 0.01)):  # two at a time
            clock[0] += after
            bar.update(done)
        bar.update(10, True)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "sweep 6/10  3 runs/min  1 min 20 s left",
        "sweep 8/10  4.5 runs/min  27 s left",
        lines[-1],
    ]
    assert lines[-1] == "sweep 10/10  6 runs/min"


def test_the_pace_leaves_out_what_warms_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: clock[0])
    with progress(100, "training") as bar:
        clock[0] += 500.0  # measuring, compiling, the first step
        bar.begin(1)
        bar.update(1, loss=1.0)
        clock[0] += 20.0
        bar.update(11, loss=1.0)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["training 1/100  loss 1", "training 11/100  loss 1  0.5 steps/s  2 min 58 s left"]


def test_disabled_progress_still_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with progress(2, "training", enabled=False, log=RunLog(tmp_path / "log.txt")) as bar:
        bar.update(2, loss=math.nan)
    assert capsys.readouterr() == ("", "")
    assert "training 2/2  loss nan" in (tmp_path / "log.txt").read_text()


def test_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress(4, "training", start=2) as bar:
        bar.line("[not markup] a line above")
        bar.update(4, loss=0.5)
    assert "4/4" in terminal.getvalue()
    assert "loss 0.5" in terminal.getvalue()
    assert "[not markup] a line above" in terminal.getvalue()
    assert capsys.readouterr().out == ""


def test_an_error_inside_the_block_passes_through() -> None:
    with pytest.raises(KeyboardInterrupt), progress(10, "training", enabled=False):
        raise KeyboardInterrupt
