"""Parts of reproductions that processes share through a folder."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from test_reproduce_all import answer, fakes  # noqa: F401 (a fixture)

from innerloop.runs.claims import Claims
from innerloop_studies.reproduce import parts, sharing
from innerloop_studies.reproduce.sharing import ahead, shared
from oracles.patience import wait_until

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks, and kills what it forked")
NAME = "x"


def computed(seed: int, folder: str) -> dict[str, int]:
    """A part that says that it was computed; the first one waits for another process to compute a second."""
    with (Path(folder) / "log").open("a") as file:
        file.write(f"{seed} {os.getpid()}\n")
    if seed == 0:
        wait_until(lambda: len({line.split()[1] for line in logged(folder)}) > 1)
    return {"value": seed * 10}


def logged(folder: str) -> list[str]:
    return (Path(folder) / "log").read_text().splitlines()


def part(job: tuple[int, str]) -> Any:
    return parts.remembered(NAME, computed, {"seed": job[0], "folder": job[1]})


def work(folder: str) -> None:
    jobs = [(seed, folder) for seed in range(4)]
    with shared(Path(folder)):
        values = list(parts.two_at_a_time(part, jobs))
    assert values == [(job, {"value": job[0] * 10}) for job in jobs]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "POLL", 0.02)
    monkeypatch.setattr(sharing, "available_cores", lambda: 1)


def forked(function: Any, *arguments: Any) -> Any:
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    return process


@forks
def test_processes_divide_the_parts_and_none_waits_while_there_is_another(tmp_path: Path) -> None:
    before = parts.remembered, parts.two_at_a_time
    processes = [forked(work, str(tmp_path)) for _ in range(2)]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert sorted(line.split()[0] for line in logged(str(tmp_path))) == ["0", "1", "2", "3"]
    assert (parts.remembered, parts.two_at_a_time) == before
    work(str(tmp_path))  # a third that comes later computes nothing
    assert len(logged(str(tmp_path))) == 4


def dies(folder: str) -> None:
    def killed(seed: int, folder: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    killed.__module__, killed.__qualname__ = computed.__module__, computed.__qualname__
    with shared(Path(folder)):
        parts.remembered(NAME, killed, {"seed": 1, "folder": folder})


@forks
def test_the_part_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    process = forked(dies, str(tmp_path))
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert list((tmp_path / "reproduce-parts" / "claims").iterdir())
    with shared(tmp_path):
        assert parts.remembered(NAME, computed, {"seed": 1, "folder": str(tmp_path)}) == {"value": 10}


def test_a_series_begins_with_what_nobody_computes(tmp_path: Path) -> None:
    many = [{"seed": seed, "folder": str(tmp_path)} for seed in (1, 2, 3)]
    ahead(NAME, computed, many)  # alone: nothing is to be done ahead
    assert not (tmp_path / "log").exists()
    name = sharing._claim_name(NAME, computed, many[0], None)
    claim = Claims(tmp_path / "reproduce-parts" / "claims").take(name)
    assert claim is not None

    def compute() -> None:
        with shared(tmp_path):
            ahead(NAME, computed, many)

    thread = threading.Thread(target=compute)
    thread.start()
    wait_until(lambda: (tmp_path / "log").exists() and len(logged(str(tmp_path))) == 2)
    claim.release()
    thread.join()
    assert [line.split()[0] for line in logged(str(tmp_path))] == ["2", "3", "1"]


def test_a_part_without_a_source_file_is_computed_each_time(tmp_path: Path) -> None:
    calls: list[int] = []
    space: dict[str, Any] = {"__name__": "nowhere", "calls": calls}
    exec("def compute(seed): calls.append(seed)", space)
    with shared(tmp_path):
        for _ in range(2):
            parts.remembered(NAME, space["compute"], {"seed": 0})
    assert len(calls) == 2


def test_a_shared_batch_keeps_what_others_finished_and_begins_with_what_they_left(
    fakes: Any,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    calls, does = fakes
    does["other"] = (False, False)
    code, first = answer(capsys, "all", "--storage", "here")
    assert (code, calls) == (0, ["good", "bad", "other"])
    code, again = answer(capsys, "all", "--storage", "here")
    assert (code, calls) == (0, ["good", "bad", "other"])
    assert again["run"] != first["run"]
    assert again["reproductions"] == first["reproductions"]
    assert Path(again["report"]).is_file()
    with Claims(Path("here") / "reproduce-parts" / "claims").take("good.cpu"):  # type: ignore[union-attr]
        code, result = answer(capsys, "all", "--storage", "here", "--scale", "cpu")
    assert calls[3:] == ["bad", "other", "good"]
    assert [one["name"] for one in result["reproductions"]] == ["good", "bad", "other"]
