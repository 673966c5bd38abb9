"""Things that stood in the library twice, and drifted: each has one place."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import torch

import innerloop
from innerloop.core import resources
from innerloop.core.formatting import duration
from innerloop.data import pictures
from innerloop.runs import manifest, progress
from innerloop.testing import closeness
from innerloop.testing import closeness as tolerance
from support.places import TESTS

PACKAGE = Path(inspect.getfile(innerloop)).parent
TOLERANCES = {"rtol", "atol", "rel", "abs", "rel_tol", "abs_tol"}


def places(kind: type[ast.stmt], name: str) -> list[str]:
    """Files that define a class or a function of this name at their top."""
    return [
        file.relative_to(PACKAGE).as_posix()
        for file in sorted(PACKAGE.rglob("*.py"))
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, kind) and getattr(node, "name", "") == name
    ]


def test_times_are_told_in_one_way() -> None:
    assert places(ast.FunctionDef, "duration") == ["core/formatting.py"]
    assert progress.duration is duration
    assert [duration(s) for s in (59.7, 60, 3600, 3661)] == ["1 min", "1 min", "1 h", "1 h 1 min"]


def test_cores_are_counted_in_one_way(monkeypatch, tmp_path) -> None:
    asking = [
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*.py")
        if "sched_getaffinity" in file.read_text(encoding="utf-8")
    ]
    assert asking == ["core/resources.py"]
    assert manifest.available_cores is pictures.available_cores is resources.available_cores
    monkeypatch.setattr(resources.os, "sched_getaffinity", lambda _: set(range(20)), raising=False)
    assert resources.available_cores() == 20
    assert pictures.cores() == 8  # decoding more at a time gains nothing
    monkeypatch.delattr(resources.os, "sched_getaffinity")
    monkeypatch.setattr(resources.os, "cpu_count", lambda: None)
    assert resources.available_cores() == 1


def literal_tolerances(tree: ast.Module) -> Iterator[ast.Constant]:
    """Small numbers that something computed is compared with, where the table has names for them."""
    for node in ast.walk(tree):
        given: list[ast.expr] = []
        if isinstance(node, ast.Call):
            given += [word.value for word in node.keywords if word.arg in TOLERANCES]
            called = ast.unparse(node.func).rpartition(".")[2]
            given += node.args[2:3] if called in ("assert_close", "assert_trees_close") else []
        elif isinstance(node, ast.Compare) and {type(sign) for sign in node.ops} & {ast.Lt, ast.LtE}:
            given += node.comparators
        for value in [part for whole in given for part in ast.walk(whole)]:
            if isinstance(value, ast.Constant) and isinstance(value.value, float) and 0 < value.value < 1e-3:
                yield value


def test_there_is_one_table_of_tolerances() -> None:
    assert closeness.TOLERANCE is tolerance.TOLERANCE
    assert tolerance.SUMMED == tolerance.TOLERANCE[torch.float64][0] == 1e-10
    wrong = [
        f"{file.relative_to(TESTS)}:{number.lineno} has {number.value}"
        for file in sorted(TESTS.glob("*/test_*.py"))
        for number in literal_tolerances(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert not wrong, "name it as innerloop.testing.closeness does"
    found = ast.parse("assert_close(a, b, (1e-4, 0)); assert x < 1e-9 * y; f(rel=2e-5); g(1e-5)")
    assert [number.value for number in literal_tolerances(found)] == [1e-4, 1e-9, 2e-5]


def test_there_is_one_kind_of_panel() -> None:
    assert places(ast.ClassDef, "Panel") == ["report/plots/panels.py"]


def test_tests_stand_in_the_room_of_what_they_test() -> None:
    rooms = {folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists()}
    beside = {"support", "oracles", "endurance", "fixtures", "golden", "whole"}
    folders = {folder.name for folder in TESTS.iterdir() if folder.is_dir()} - {"__pycache__"}
    assert folders <= rooms | beside
    assert not list(TESTS.glob("test_*.py"))
    assert [
        folder for folder in sorted(folders - beside) if not list((TESTS / folder).glob("test_*.py"))
    ] == []
