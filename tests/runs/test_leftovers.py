"""What a kill left half-written in a run is gone once somebody goes on with it; what others write is not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from innerloop.core.errors import UserError
from innerloop.experiment.resuming import resume
from support.places import FIXTURES

RUN = FIXTURES / "runs" / "sine-maml"


def test_whoever_goes_on_with_a_run_clears_up_after_kills(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(RUN, run)
    before = sorted(path.relative_to(run) for path in run.rglob("*"))
    (run / "checkpoints" / ".tmp-killed").mkdir()
    (run / "checkpoints" / ".tmp-killed" / "tensors.safetensors").write_bytes(b"half")
    for name in ("checkpoints/.last.json-a.tmp", ".manifest.json-b.tmp", ".metrics.jsonl-c.tmp"):
        (run / name).write_text("{")
    theirs = [run / "eval" / ".sine-1.json-d.tmp", run / ".report.html-e.tmp"]
    for file in theirs:  # whoever writes these has no lock, and may be writing
        file.write_text("{")
    with pytest.raises(UserError, match="is finished"):
        resume(run, progress=False)
    left = sorted(path.relative_to(run) for path in run.rglob("*") if path.name != ".lock")
    assert left == sorted([*before, *(file.relative_to(run) for file in theirs)])
