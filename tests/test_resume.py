"""Resuming after ``kill -9`` at any moment gives what an uninterrupted run gives, bit for bit."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import innerloop
from innerloop.runs.checkpoints import load_checkpoint
from innerloop.runs.manifest import read_manifest
from innerloop.runs.metrics import read_metrics
from oracles import kill_server
from oracles.tolerance import assert_trees_equal

KILLS = 20  # at least
SETTINGS = [
    "run.execution=vmap",
    "run.compile=off",
    "run.threads=1",
    "run.log_every=3",
    "run.save_every=7",
    "tasks.n_tasks=50",
    "model.hidden=[6]",
    "outer.steps=250",
    "outer.batch=2",
    "outer.optimiser=radam",
    "outer.clip=2",  # makes every update depend on a sum over all parameters
    "outer.schedule=plateau",
    "outer.plateau_patience=2",
    "eval.every=20",
    "eval.validation_episodes=4",
    "eval.episodes=20",
]


class Server:
    """The other end of :mod:`oracles.kill_server`."""

    def __init__(self, errors: Path) -> None:
        self.errors = errors
        homes = [Path(innerloop.__file__).parents[1], Path(__file__).parent]
        path = os.pathsep.join([*map(str, homes), os.environ.get("PYTHONPATH", "")])
        with errors.open("w") as file:
            self._process = subprocess.Popen(
                [sys.executable, kill_server.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env={**os.environ, "PYTHONPATH": path},
            )

    def ask(self, folder: Path, run: Path | None, after: float | None) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"folder": str(folder), "run": run and str(run), "settings": SETTINGS, "after": after}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer in ("killed", "done"), self.errors.read_text()[-3000:]
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "errors.txt")
    yield made
    made.close()


def only_run(folder: Path) -> Path | None:
    """The run to resume: none if the first child was killed before it had written its recipe."""
    runs = [path.parent for path in folder.glob("*/*/recipe.toml")]
    assert len(runs) <= 1
    return runs[0] if runs else None


def story(run: Path) -> list[dict[str, Any]]:
    """The metrics without what a clock said."""
    timed = ("seconds", "tasks_per_second")
    return [{k: v for k, v in r.items() if k not in timed} for r in read_metrics(run / "metrics.jsonl")]


def check_same(run: Path, whole: Path) -> None:
    for tag in ("last", "best"):
        one, two = load_checkpoint(run, tag), load_checkpoint(whole, tag)
        assert one is not None
        assert two is not None
        assert_trees_equal(one[0], two[0])  # parameters and the optimiser's state
        assert one[1] == two[1]  # step, best, plateau
    assert story(run) == story(whole)
    assert read_manifest(run)["status"] == "finished"
    results = [json.loads(max((r / "eval").iterdir()).read_text()) for r in (run, whole)]
    assert results[0]["scores"] == results[1]["scores"]
    left = [p.name for p in (run / "checkpoints").iterdir() if p.name.startswith(".")]
    assert left == []  # nothing half-written stays behind


def test_resume_after_kill_is_bit_identical(server: Server, tmp_path: Path) -> None:
    assert server.ask(tmp_path / "whole", None, None) == "done"
    whole = only_run(tmp_path / "whole")
    assert whole is not None
    dice = random.Random(0)
    kills, rounds = 0, 0
    while kills < KILLS:
        rounds += 1
        folder = tmp_path / f"round{rounds}"
        here, answer = 0, "killed"
        while answer == "killed":
            # after twenty kills in one round the run may end in peace
            after = dice.uniform(0.02, 0.7) if here < 20 else None
            answer = server.ask(folder, only_run(folder), after)
            here += answer == "killed"
        kills += here
        finished = only_run(folder)
        assert finished is not None
        check_same(finished, whole)
        assert rounds < 40, "the children finish before they are killed: make outer.steps larger"
