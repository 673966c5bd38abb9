"""Of tests marked ``one_in(n)``, every case runs within n commits, and about one in n at each."""

from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.drawn import GIVEN, mark_slow, turn

CASES = [
    f"tests/room/test_file.py::test_it[{method}-{rate}-{shots}]"
    for method, rate, shots in itertools.product(("maml", "erm", "reptile"), (0.1, 0.2), range(100))
]


def run_now(ids: list[str], n: int | None, turn: int) -> list[str]:
    """Those that are not slow."""
    slow: list[str] = []

    def item(nodeid: str) -> SimpleNamespace:
        marker = None if n is None else SimpleNamespace(args=(n,))
        return SimpleNamespace(
            nodeid=nodeid,
            get_closest_marker=lambda name: marker if name == "one_in" else None,
            add_marker=lambda name: slow.append(nodeid) if name == "slow" else None,
        )

    mark_slow([item(nodeid) for nodeid in ids], turn)  # type: ignore[misc]
    return [nodeid for nodeid in ids if nodeid not in slow]


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("first", [0, 1135, 0xFC9E0D6D9C2B])
def test_every_case_runs_once_within_n_commits(n: int, first: int) -> None:
    drawn = [run_now(CASES, n, first + commit) for commit in range(n)]
    assert sorted(itertools.chain(*drawn)) == sorted(CASES)
    for cases in drawn:  # about a share of one in n, and of every axis
        assert len(cases) == pytest.approx(len(CASES) / n, rel=0.2)
        assert all(
            any(name in case for case in cases) for name in ("maml", "erm", "reptile", "-0.1-", "-0.2-")
        )


def test_a_case_runs_whichever_others_are_collected_and_unmarked_ones_always() -> None:
    together = run_now(CASES, 3, 7)
    assert together == [case for case in CASES if run_now([case], 3, 7)]
    assert run_now(CASES, None, 7) == CASES


def git(folder: Path, *words: str) -> None:
    person = ("-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *person, *words], check=True, capture_output=True)


def test_the_turn_is_the_number_of_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(GIVEN)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    origin = tmp_path / "origin"
    origin.mkdir()
    assert turn(origin) == 0  # a source archive
    git(origin, "init", "-q")
    assert turn(origin) == 0
    turns = []
    for _ in range(3):
        git(origin, "commit", "-q", "--allow-empty", "-m", "one more")
        turns.append(turn(origin))
    assert turns == [1, 2, 3]
    shallow = []
    for name in ("shallow", "later"):
        git(tmp_path, "clone", "-q", "--depth", "1", origin.as_uri(), name)
        shallow.append(turn(tmp_path / name))
        git(origin, "commit", "-q", "--allow-empty", "-m", "and another")
    assert 1 < shallow[0] != shallow[1] > 1
    monkeypatch.setenv("PATH", str(tmp_path))
    assert turn(origin) == 0  # a machine without git


def test_workers_take_the_turn_of_the_first_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert os.environ[GIVEN] == str(turn())
    monkeypatch.setenv(GIVEN, "12345")
    assert turn() == 12345
