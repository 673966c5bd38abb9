"""trackio and Weights & Biases themselves; ``make test-trackers`` runs this where they are installed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from innerloop.runs.metrics import read_metrics

QUICK = (
    "outer.steps=40",
    "eval.every=40",
    "eval.validation_episodes=4",
    "eval.episodes=4",
    "run.log_every=1",
)
PLAN = ("run.save_every=5", "run.execution=loop", "run.compile=off")


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "innerloop", *words]


def killed_and_resumed(tracker: str, folder: Path, environment: dict[str, str]) -> tuple[Path, str]:
    """A run that was killed after a few records and resumed, and what the resuming printed."""
    words = command("train", "sine-maml", f"run.track={tracker}", *QUICK, *PLAN)
    process = subprocess.Popen(words, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    metrics: list[Path] = []
    while process.poll() is None and not (metrics and len(read_metrics(metrics[0])) > 10):
        time.sleep(0.05)
        metrics = list(folder.glob("runs/*/*/metrics.jsonl"))
    process.send_signal(signal.SIGKILL)
    process.wait()
    run = metrics[0].parent
    assert json.loads((run / "manifest.json").read_text())["status"] == "running"
    again = command("resume", str(run), "--json")
    done = subprocess.run(again, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return run, done.stdout


@pytest.mark.slow
def test_trackio_has_every_number_of_a_run_that_was_killed(tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    environment = {**os.environ, "TRACKIO_DIR": str(tmp_path / "trackio")}
    run, printed = killed_and_resumed("trackio", tmp_path, environment)
    assert json.loads(printed)["steps"] == 40, "standard output is the answer alone"
    told = trackio(environment, "list", "runs", "--project", "innerloop")
    assert told["runs"] == [f"sine-maml-{run.name}"]
    losses, scores = (
        {row["step"]: row["value"] for row in trackio_metric(environment, told["runs"][0], name)["values"]}
        for name in ("loss", "test/mse")
    )
    kept = {row["step"]: row["loss"] for row in read_metrics(run / "metrics.jsonl") if "loss" in row}
    assert len(kept) == 40
    assert losses.items() <= kept.items()  # what it had not yet written when it was killed, it does not have
    assert 40 in losses
    assert list(scores) == [40]


def trackio_metric(environment: dict[str, str], run: str, name: str) -> dict[str, Any]:
    return trackio(environment, "get", "metric", "--project", "innerloop", "--run", run, "--metric", name)


def trackio(environment: dict[str, str], *words: str) -> dict[str, Any]:
    """What the command of trackio answers."""
    code = "import sys; from trackio.cli import main; sys.exit(main())"
    asked = [sys.executable, "-c", code, *words, "--json"]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.slow
def test_wandb_keeps_its_files_in_the_run(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    run, printed = killed_and_resumed("wandb", tmp_path, dict(os.environ))
    assert json.loads(printed)["steps"] == 40
    kept = list((run / "wandb").glob("offline-run-*"))
    assert len(kept) == 2
    assert {folder.name.split("-", maxsplit=3)[3] for folder in kept} == {f"sine-maml-{run.name}"}
