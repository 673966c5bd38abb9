"""Benchmarks on machines where something kills the process, and in folders with files named like modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from innerloop.core.errors import UserError
from innerloop.training.execution import probes
from innerloop.training.execution.probes import Outcome, kept_in, remember
from innerloop_studies.bench import maml_sine, memory, rate, resnet
from innerloop_studies.bench.harness import Child

SIGILL = "a bfloat16 product ends the process with SIGILL"


@pytest.mark.slow
def test_the_benchmark_leaves_bfloat16_out_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sides are other processes, which find the outcome on the disk; what they say is in the table."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    remember(*kept_in(probes.BFLOAT16_PROBE), Outcome(False, "ends the process with SIGILL"))
    spec = {"side": "ours", "precision": "auto", "threads": 1, "widths": [4, 4, 8, 8], "samples": 8}
    with Child("ours", resnet.__name__) as child:
        remark = child.ask("setup", spec=spec)["remark"]
    assert remark == f"float32: bfloat16 is left out because {SIGILL} here: float32 is kept"
    with pytest.raises(UserError, match="ends the process with SIGILL"):
        resnet.run(quick=True, say=lambda line: None, precision="bfloat16")


def test_the_benchmark_leaves_compiling_out_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\nexit 0\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    said: list[str] = []
    monkeypatch.setattr(maml_sine, "run_cases", lambda name, cases, quick, say: {"cases": cases})
    ways = maml_sine.run(say=said.append)["cases"][0][1]
    assert [way.plan["compile"] for way in ways] == ["off", "trace"]
    assert any("it made no library" in line and "left out" in line for line in said)


@pytest.mark.slow
def test_benchmarks_import_nothing_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "numpy", "json", "innerloop", "innerloop_studies"):
        (tmp_path / f"{name}.py").write_text("from pathlib import Path\nPath('escaped').write_text('')\n")
    monkeypatch.chdir(tmp_path)
    with Child("a side", memory.WORKER) as child:
        assert child.ask("block", repeats=1)["seconds"]
    assert rate._child("formed", 1)["tasks"] == 1
    assert not (tmp_path / "escaped").exists()
