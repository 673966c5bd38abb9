"""Short forms of ``python -m endurance``: some kills of each kind, pairs, and a soak of a minute."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import innerloop
from oracles.patience import PATIENCE
from support.places import TESTS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, and looks into /proc")


def endurance(tmp_path: Path, *words: str) -> list[dict[str, Any]]:
    """What the script found; everything that it makes is in a folder of the test."""
    path = [
        str(TESTS),
        str(Path(innerloop.__file__).parents[1]),
        os.environ.get("PYTHONPATH", ""),
    ]
    out = tmp_path / "out.json"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "endurance", "--out", str(out), *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"
    found: list[dict[str, Any]] = json.loads(out.read_text())["results"]
    return found


@pytest.mark.slow
def test_a_few_kills_of_evaluation_and_conversion(tmp_path: Path) -> None:
    """Training has its own storm in ``test_resume.py``."""
    found = endurance(tmp_path, "kills", "--each", "5", "--kinds", "evaluation,data conversion")
    assert [(row["kind"], row["kills"] >= 5, row["problems"]) for row in found] == [
        ("evaluation", True, []),
        ("data conversion", True, []),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("signal", ["KILL", "TERM"])
def test_kills_of_every_kind(signal: str, tmp_path: Path) -> None:
    found = endurance(tmp_path, "kills", "--each", "10", "--seed", "1", "--signal", signal)
    kinds = {"training", "evaluation", "data conversion", "sweep", "search", "feature extraction"}
    assert {row["kind"] for row in found} == kinds
    assert all(row["kills"] >= 10 and row["problems"] == [] for row in found)


@pytest.mark.slow
def test_two_at_once(tmp_path: Path) -> None:
    found = endurance(tmp_path, "pairs", "--each", "20")
    assert [(row["pair"], row["problem"]) for row in found] == [
        ("resume", None),
        ("eval", None),
        ("data get", None),
    ]


@pytest.mark.slow
def test_a_soak(tmp_path: Path) -> None:
    found = endurance(tmp_path, "soak", "--steps", "20000", "--episodes", "10000", "--modes", "trace")
    assert all(row["flat"] for row in found)
