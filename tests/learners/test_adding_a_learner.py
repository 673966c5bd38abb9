"""Adding a learner takes its file and an entry in the table: a copy of the package gets one, and uses it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import innerloop
from oracles.patience import PATIENCE
from support.places import FIXTURES

PATCH = (FIXTURES / "tiny-learner.patch").read_text(encoding="utf-8")
PACKAGE = Path(innerloop.__file__).parent


def files_of(patch: str) -> dict[str, str]:
    """The part of a patch about each file, by the file's name."""
    parts = re.split(r"^diff --git .*\n", patch, flags=re.MULTILINE)[1:]
    return {re.findall(r"^\+\+\+ b/(.*)$", part, re.MULTILINE)[0]: part for part in parts}


def apply(patch: str, root: Path) -> None:
    """Applies a patch: what each hunk begins with must be there exactly once."""
    for name, part in files_of(patch).items():
        file = root / name
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        for hunk in re.split(r"^@@ .*\n", part, flags=re.MULTILINE)[1:]:
            lines = hunk.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] in " -")
            after = "".join(line[1:] for line in lines if line[0] in " +")
            assert not text if not before else text.count(before) == 1, name
            text = text.replace(before, after) if before else after
        file.write_text(text, encoding="utf-8")


@pytest.mark.slow
def test_a_learner_is_its_file_and_an_entry(tmp_path: Path) -> None:
    assert set(files_of(PATCH)) == {f"src/innerloop/learners/{name}.py" for name in ("table", "tiny")}
    copy = tmp_path / "src" / "innerloop"
    # with what is compiled, which saves seconds, but not what is being written just now
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("*.pyc.*"))
    apply(PATCH, tmp_path)
    env = {**os.environ, "PYTHONPATH": str(copy.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", str(FIXTURES / "use_tiny_learner.py")]
    done = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads((tmp_path / "shown.json").read_text())

    assert shown["settings"] == {"penalty": 0.5}
    assert (
        "is no setting of inner.method=tiny (did you mean 'penalty'?): there are penalty" in shown["misspelt"]
    )
    assert shown["wrong kind"] == "inner.settings.penalty must be a number, not 'big'."
    assert "unknown setting 'inner.settings' with inner.method=maml: it is for" in shown["not its own"]
    assert "tiny" in shown["not its own"]
    assert "unknown setting 'inner.lr' with inner.method=tiny" in shown["no rate"]
    assert any(
        line.startswith("| last layer | ANIL | ") and "Tiny" in line for line in shown["cells"].splitlines()
    )
    assert "`penalty` (a number): the ridge's λ" in shown["learners"]
    assert shown["torch before training"] is False

    assert shown["codes"] == [2, 0, 0]
    assert "penalty must be above 0, not -1" in done.stderr
    first, second = shown["evaluations"]
    assert first["protocol"]["method"] == "tiny"
    assert first["mean"] != second["mean"]  # the setting is read
    assert second["changed"] == {"inner.settings.penalty": 50.0}
