"""Things that stood in the library twice, and drifted: each has one place."""

import ast
import inspect
from pathlib import Path

import innerloop
from innerloop.core import cores
from innerloop.core.words import duration
from innerloop.data.layouts import layout
from innerloop.execution import plan
from innerloop.runs import manifest, progress
from innerloop.testing import collect, tolerance
from oracles.tolerance import TOL

PACKAGE = Path(inspect.getfile(innerloop)).parent


def places(kind: type[ast.stmt], name: str) -> list[str]:
    """Files that define a class or a function of this name at their top."""
    return [
        file.relative_to(PACKAGE).as_posix()
        for file in sorted(PACKAGE.rglob("*.py"))
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, kind) and getattr(node, "name", "") == name
    ]


def test_times_are_told_in_one_way() -> None:
    assert places(ast.FunctionDef, "duration") == ["core/words.py"]
    assert progress.duration is duration
    assert [duration(s) for s in (59.7, 60, 3600, 3661)] == ["1 min", "1 min", "1 h", "1 h 1 min"]


def test_cores_are_counted_in_one_way(monkeypatch, tmp_path) -> None:
    asking = [
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*.py")
        if "sched_getaffinity" in file.read_text(encoding="utf-8")
    ]
    assert asking == ["core/cores.py"]
    assert plan.available_cores is manifest.available_cores is layout.available_cores is cores.available_cores
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: set(range(20)), raising=False)
    assert cores.available_cores() == 20
    assert layout.cores() == 8  # decoding more at a time gains nothing
    monkeypatch.delattr(cores.os, "sched_getaffinity")
    monkeypatch.setattr(cores.os, "cpu_count", lambda: None)
    assert cores.available_cores() == 1


def test_there_is_one_table_of_tolerances() -> None:
    assert TOL is collect.TOLERANCE is tolerance.TOLERANCE


def test_there_is_one_kind_of_panel() -> None:
    assert places(ast.ClassDef, "Panel") == ["plots/panels.py"]
