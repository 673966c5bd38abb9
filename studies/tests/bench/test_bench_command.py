"""`innerloop bench`: its table, its pictures, its mistakes; and the benchmarks that `ls` lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from innerloop_studies.bench import BENCHMARKS
from support.commands import answer

pytestmark = pytest.mark.usefixtures("own_folder")


def test_ls_lists_the_benchmarks(call: Any) -> None:
    code, out, _ = call("ls", "--json")
    assert code == 0
    assert [bench["name"] for bench in answer(out)["benchmarks"]] == list(BENCHMARKS)


def test_a_benchmark_that_there_is_not(call: Any) -> None:
    code, out, err = call("bench", "maml-sin")
    assert (code, out) == (2, "")
    assert "unknown benchmark 'maml-sin' (did you mean 'maml-sine'?)" in " ".join(err.split())


def test_bench_draws_what_can_be_drawn(call: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    growth = {"points": [250, 500], "seconds": {"mtl": [0.1, 0.4], "anil": [0.2, 0.8], "maml": [0.2, 0.9]}}
    ran = []

    def run(name: str, **_: object) -> dict[str, Any]:
        ran.append(name)
        return {"name": name, "cases": [], "growth": growth}

    monkeypatch.setattr("innerloop_studies.cli.bench.run", run)
    file = tmp_path / "growth.png"
    code, out, _ = call("bench", "metakernel", "--figure", str(file))
    assert code == 0
    assert file.read_bytes().startswith(b"\x89PNG")
    assert str(file) in out.replace("\n", "")
    for name, where, says in (
        ("memory", tmp_path / "x.png", "has no picture"),
        ("metakernel", file, "already there"),
        ("metakernel", tmp_path / "x.txt", "give a .png"),
        ("metakernel", tmp_path / "no" / "x.png", "a folder that exists"),
    ):
        code, _, err = call("bench", name, "--figure", str(where))
        assert code == 2
        assert says in " ".join(err.split())
    assert ran == ["metakernel"]


def test_bench_prints_a_table(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {
        "case": "5 steps",
        "peer": "plain-loop",
        "ours_ms": 2.0,
        "peer_ms": 60.0,
        "ratio": 30.0,
        "notes": "a note",
    }

    def run(name: str, *, quick: bool, say: Any) -> dict[str, Any]:
        say("measuring")
        return {"name": name, "cases": [row], "quick": quick}

    monkeypatch.setattr("innerloop_studies.cli.bench.run", run)
    code, out, err = call("bench", "maml-sine", "--quick")
    assert code == 0
    assert "30.00×" in out
    assert "5 steps, plain-loop: a note" in out
    assert err == "measuring\n"
    _, out, _ = call("bench", "maml-sine", "--json")
    assert answer(out)["cases"] == [row]
