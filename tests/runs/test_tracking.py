"""Trackers are told every number of a run, are offline unless asked, and can never end a training."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from innerloop import UserError
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.resuming import resume
from innerloop.experiment.training import train
from innerloop.runs.manifest import read_manifest
from innerloop.runs.metrics import MetricsWriter
from innerloop.runs.tracking import TrackerRun, check_followers

TRACKERS = ("trackio", "wandb")
FAKE = '''
import json, os
from pathlib import Path

CALLS = Path(__file__).with_name("calls.jsonl")

def call(name, /, **given):
    """Prints as the real ones do, fails where it is told to, and keeps what it was given."""
    print("* greetings")
    if os.environ.get("FAILS") == name:
        raise RuntimeError(f"{name} went wrong\\nin many lines")
    with CALLS.open("a") as file:
        file.write(json.dumps([name, given, os.getpid()]) + "\\n")

def init(*, project, name=None, group=None, config=None, resume=None, settings=None, embed=None, id=None,
         dir=None, mode=None):
    given = {key: value for key, value in locals().items() if value is not None}
    call("init", **given)

def log(metrics, step=None):
    call("log", metrics=metrics, step=step)

def finish():
    call("finish")

def Settings(**given):
    return given
'''
Calls = Callable[[], list[tuple[str, dict[str, Any]]]]


@pytest.fixture(params=TRACKERS)
def tracker(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def calls(tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """A package with the tracker's name and its interface, which writes down how it was called."""
    package = tmp_path / "packages" / tracker
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(FAKE)
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.delitem(sys.modules, tracker, raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    kept = package / "calls.jsonl"

    def read() -> list[tuple[str, dict[str, Any]]]:
        lines = kept.read_text().splitlines() if kept.exists() else []
        return [(name, given) for name, given, _ in map(json.loads, lines)]

    return read


def known(tracker: str, folder: Path, said: list[str], resumed: bool = False) -> TrackerRun:
    return TrackerRun(tracker, "mine", "sine-1-s0", {"inner": {"lr": 0.1}}, folder, resumed, said.append)


def small(tmp_path: Path, tracker: str, *settings: str) -> Recipe:
    quick = (
        "outer.steps=4",
        "eval.episodes=4",
        "eval.every=4",
        "eval.validation_episodes=2",
        "run.execution=loop",
        "run.compile=off",
    )
    often = ("run.log_every=2", "run.save_every=2")
    ours = (f"run.track={tracker}", f"run.folder={tmp_path / 'runs'}")
    return load_recipe("sine-maml", [*quick, *often, *ours, *settings])


def test_every_number_is_told_and_nothing_else(tracker: str, calls: Calls, tmp_path: Path) -> None:
    said: list[str] = []
    with MetricsWriter(tmp_path / "metrics.jsonl", tracked=known(tracker, tmp_path, said)) as writer:
        writer.write({"step": 2, "loss": 0.5, "score": "mse", "best": True})
    begun, logged, ended = calls()
    assert begun[0] == "init"
    assert begun[1] | {"project": "mine", "name": "sine-1-s0", "config": {"inner": {"lr": 0.1}}} == begun[1]
    assert logged == ("log", {"metrics": {"loss": 0.5}, "step": 2})
    assert ended == ("finish", {})
    assert len(said) == 1
    assert said[0].startswith(f"tracked by {tracker} as sine-1-s0 in project mine")


def test_greetings_stay_out_of_standard_output(
    tracker: str, calls: Calls, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with MetricsWriter(tmp_path / "metrics.jsonl", tracked=known(tracker, tmp_path, [])) as writer:
        writer.write({"step": 1, "loss": 1.0})
    assert len(calls()) == 3
    assert capsys.readouterr().out == ""


def test_what_only_one_of_them_takes(
    tracker: str, calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights & Biases is offline unless the environment says otherwise; trackio resumes by name."""
    for mode in (None, "online"):
        if mode is not None:
            monkeypatch.setenv("WANDB_MODE", mode)
        MetricsWriter(tmp_path / "metrics.jsonl", tracked=known(tracker, tmp_path, [], resumed=True)).close()
    keys = ("mode", "resume", "id", "dir", "embed")
    begun = [{key: given[key] for key in keys if key in given} for name, given in calls() if name == "init"]
    offline = {"mode": "offline", "id": "sine-1-s0", "dir": str(tmp_path)}
    assert (
        begun
        == {
            "trackio": [{"resume": "allow", "embed": False}] * 2,
            "wandb": [offline, {**offline, "mode": "online", "resume": "allow"}],
        }[tracker]
    )


@pytest.mark.parametrize("moment", ["init", "log", "finish"])
def test_a_tracker_that_fails_is_given_up_with_one_sentence(
    tracker: str, calls: Calls, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILS", moment)
    said: list[str] = []
    with MetricsWriter(tmp_path / "metrics.jsonl", tracked=known(tracker, tmp_path, said)) as writer:
        for step in (1, 2):
            writer.write({"step": step, "loss": 1.0})
    warnings = [line for line in said if line.startswith("warning")]
    assert warnings == [
        f"warning: {tracker} has failed ({moment} went wrong): the run goes on without it, and "
        "metrics.jsonl has everything."
    ]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def test_a_missing_package_is_refused_before_anything_is_written(
    tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, tracker, None)
    wanted = rf"run\.track={tracker} needs the package {tracker}: `pip install 'innerloop\[{tracker}\]'`"
    with pytest.raises(UserError, match=wanted):
        train(small(tmp_path, tracker), progress=False)
    assert not (tmp_path / "runs").exists()


def test_a_folder_of_the_same_name_is_no_package(
    tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / tracker / "offline-run-1").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, tracker, raising=False)
    with pytest.raises(UserError, match="needs the package"):
        check_followers(track=tracker)


def test_a_resumed_run_continues_what_is_tracked(
    calls: Calls, tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small(tmp_path, tracker, "run.project=mine")
    write, stopped = MetricsWriter.write, []

    def stop_at_the_end(self: MetricsWriter, values: dict[str, Any]) -> None:
        if values["step"] == 4 and not stopped:
            stopped.append(True)
            raise KeyboardInterrupt
        write(self, values)

    monkeypatch.setattr(MetricsWriter, "write", stop_at_the_end)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, progress=False)
    (run,) = (tmp_path / "runs").glob("*/*")
    resume(run, progress=False)
    begun = [given for name, given in calls() if name == "init"]
    assert [given["name"] for given in begun] == [f"sine-maml-{run.name}"] * 2
    assert read_manifest(run)["tracked"] == {"by": tracker, "project": "mine", "name": begun[0]["name"]}
    if tracker == "trackio":
        assert [given["resume"] for given in begun] == ["never", "allow"]
    else:
        assert begun[0]["id"] == begun[1]["id"]
    logged = [given for name, given in calls() if name == "log"]
    assert [given["step"] for given in logged] == [2, 4, 4, 4]  # loss, loss, validation, test
    assert set(logged[-1]["metrics"]) == {"test/mse", "test/ci95"}
    assert begun[0]["config"]["inner"]["lr"] == recipe.inner.lr
