"""What commands answer, how learners begin, and what is public: as it was when the golden files were written.

After a change that is meant to alter them, write them anew and say in the commit why they moved:

    PYTHONPATH=src python scripts/goldens.py write tests/golden --only names 'losses/*' verbs/eval-run …
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from innerloop.learners import LEARNERS
from innerloop.learners.objectives.base import OBJECTIVES
from oracles.patience import PATIENCE
from support.places import GOLDEN, ROOT

sys.path.append(str(ROOT / "scripts"))
import goldens

TOLERANCE = 1e-3
"""Of numbers, relative: processors differ. Everything else is the same."""
PYTHON = (3, 11)
"""Of which signatures were written: other versions print some otherwise."""
VERBS = sorted(f"{kind}/{file.stem}" for kind in ("verbs", "shape") for file in (GOLDEN / kind).iterdir())
QUICK = [
    "verbs/bad-fit",
    "verbs/bad-setting",
    "verbs/eval-head-ridge-grid",
    "verbs/eval-run",
    "verbs/kernels-bridge",
    "verbs/landscape-closed",
    "verbs/ls-runs",
    "verbs/predict-run",
    "verbs/rate-drawn",
    "verbs/show-changed",
    "verbs/train-sine-maml",
]
"""Those that CI has time for."""


def kept(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


def assert_as_kept(names: Sequence[str], folder: Path) -> None:
    """Makes the files again, in a process that has done nothing else, and compares."""
    script = [sys.executable, str(ROOT / "scripts" / "goldens.py"), "write", str(folder), "--only", *names]
    done = subprocess.run(script, capture_output=True, text=True, timeout=10 * PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    found = {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in names}
    differs = {name: [*goldens.differences(kept(name), new, TOLERANCE)] for name, new in found.items()}
    assert {name: lines for name, lines in differs.items() if lines} == {}


@pytest.mark.usefixtures("environment")
def test_commands_answer_as_before(tmp_path: Path) -> None:
    assert_as_kept(QUICK, tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("environment")
def test_everything_answers_as_before(tmp_path: Path) -> None:
    assert_as_kept([*VERBS, *(f"losses/{mode}" for mode in goldens.MODES)], tmp_path)


@pytest.mark.usefixtures("own_folder")
def test_learners_begin_as_before() -> None:
    """Every learner once: those that fit numbers do it on sinusoids, which take less time than pictures."""
    twice = {f"glyphs-{name}" for name, entry in LEARNERS.items() if not entry.needs_labels}
    golden = {name: losses for name, losses in kept("losses/loop").items() if name not in twice}
    found = goldens.runs.all_losses(goldens.MODES["loop"], without=[*twice])
    assert [*goldens.differences(golden, found, TOLERANCE)] == []


def test_public_names_are_those_of_before() -> None:
    names, found = kept("names"), goldens.public_names()
    assert set(found) - set(names) == set()
    assert set(names) - set(found) == set()
    if sys.version_info[:2] == PYTHON:
        assert {name: found[name] for name in names if found[name] != names[name]} == {}


def test_every_learner_and_objective_has_its_losses() -> None:
    names = set(kept("losses/loop"))
    assert {f"glyphs-{learner}" for learner in LEARNERS} <= names
    assert {f"sine-{learner}" for learner, entry in LEARNERS.items() if not entry.needs_labels} <= names
    others = set(OBJECTIVES) - {"episodic", "none"}
    assert {f"{family}-{objective}" for family in ("sine", "glyphs") for objective in others} <= names
    assert {"loop", "vmap", "threads", "processes"} <= set(goldens.MODES)


def test_what_changed_is_told() -> None:
    golden = kept("verbs/train-sine-maml")
    assert [*goldens.differences(golden, golden, 0.0)] == []
    answer = golden["answer"]
    other = {**golden, "answer": {**answer, "steps": answer["steps"] + 1, "more": 1}}
    assert [*goldens.differences(golden, other, TOLERANCE)] == [
        f".answer.steps: '{answer['steps']}' → '{answer['steps'] + 1}'",
        ".answer.more is new",
    ]
    near = json.loads(
        json.dumps(golden).replace(str(answer["metrics"]["mse"]), str(1.0001 * answer["metrics"]["mse"]))
    )
    assert [*goldens.differences(golden, near, TOLERANCE)] == []
    assert len([*goldens.differences(golden, near, 0.0)]) >= 2
