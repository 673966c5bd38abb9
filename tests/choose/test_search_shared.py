"""A search that processes share through a folder finds what one process finds, whoever dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from innerloop.choose.pilot import sharing
from innerloop.choose.pilot.asked import Asked, understand
from innerloop.choose.pilot.run import search
from innerloop.choose.pilot.together import search_together
from innerloop.choose.pilot.trials import Reached, Trial
from innerloop.core.errors import UserError
from innerloop.core.files import read_json, write_json_atomic
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.trust import UntrustedCodeError
from innerloop.runs.claims import Claims
from innerloop.runs.manifest import read_manifest
from oracles.patience import PATIENCE, wait_until
from oracles.race import without_times as _bare

RACE = [
    *("space=convnet", "space.depths=[1,2]", "space.widths=[2,3]", "space.kernels=[3]", "repeats=1"),
    *("k=2", "pool=5", "episodes=4", "score=parameters,flops", "tasks.ways=5"),
]
SAME = ("shortlist", "chosen", "sentence", "rungs")


@pytest.fixture(autouse=True)
def _quick(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "POLL", 0.01)


def _asked(*items: str) -> Asked:
    return understand("glyphs", [*RACE, *(items or ("steps=4",))], validate=False)


def _trials(run: Path, count: int) -> list[Trial]:
    recipe = Recipe().model_dump(exclude_none=True)
    return [Trial(recipe, run / "candidates" / f"random-{i}", "rung-1", 3, 2) for i in range(count)]


def _reached(trial: Trial) -> Reached:
    """A result that tells whose it is."""
    return Reached(
        trial.steps, trial.episodes, float(trial.folder.name.rpartition("-")[2]), 0.0, 0.0, 0.0, []
    )


def _fake(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Training that takes no time, and the names of what was trained."""
    trained: list[str] = []

    def carry_out(trial: Trial) -> Reached:
        if not trial.file.is_file():
            trained.append(trial.folder.name)
            time.sleep(0.002)  # so that others come meanwhile
            trial.folder.mkdir(parents=True, exist_ok=True)
            write_json_atomic(trial.file, _reached(trial)._asdict())
        return Reached(**read_json(trial.file))

    monkeypatch.setattr(sharing, "carry_out", carry_out)
    return trained


def test_no_candidate_is_trained_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained, trials = _fake(monkeypatch), _trials(tmp_path, 30)
    answers: list[list[Reached]] = []
    threads = [
        threading.Thread(
            target=lambda: answers.append(sharing.trained_together(trials, tmp_path, 1, lambda _: None))
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(trained) == sorted(trial.folder.name for trial in trials)
    assert answers == [[_reached(trial) for trial in trials]] * 3


def test_what_another_holds_is_waited_for_and_taken_over_if_it_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, trials = _fake(monkeypatch), _trials(tmp_path, 2)
    other = Claims(tmp_path / sharing.CLAIMS).take("random-0.rung-1")
    assert other is not None
    scores: dict[int, Any] = {}
    assert sharing.train_free(trials, tmp_path, 1, scores.__setitem__) == 1
    assert list(scores) == [1]
    done: list[Trial] = []
    waiting = threading.Thread(
        target=lambda: sharing.trained_together(trials, tmp_path, 1, done.append), daemon=True
    )
    waiting.start()
    wait_until(lambda: done == [trials[1]])
    other.release()  # as if its process had ended
    waiting.join(PATIENCE)
    assert done == [trials[1], trials[0]]
    assert trained == ["random-1", "random-0"]


def test_what_is_posted_is_read_where_the_folder_has_another_name(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    assert sharing.posted(here, Recipe()) == []
    sharing.post(here, _trials(here, 3))
    here.rename(there)
    assert sharing.posted(there, Recipe()) == _trials(there, 3)


@pytest.mark.parametrize("folder", ["../elsewhere", "/elsewhere"])
def test_nothing_outside_the_run_is_written(folder: str, tmp_path: Path) -> None:
    sharing.post(tmp_path, _trials(tmp_path, 1))
    told = read_json(tmp_path / sharing.POSTED)
    told["trials"][0]["folder"] = folder
    write_json_atomic(tmp_path / sharing.POSTED, told)
    with pytest.raises(UserError, match="is damaged"):
        sharing.posted(tmp_path, Recipe())


def test_code_that_only_the_folder_names_is_not_imported(tmp_path: Path) -> None:
    sharing.post(tmp_path, _trials(tmp_path, 1))
    told = read_json(tmp_path / sharing.POSTED)
    told["trials"][0]["recipe"]["model"]["kind"] = "evil:net"
    write_json_atomic(tmp_path / sharing.POSTED, told)
    with pytest.raises(UntrustedCodeError, match="evil:net"):
        sharing.posted(tmp_path, Recipe())
    named = Recipe.model_validate(told["trials"][0]["recipe"])
    assert len(sharing.posted(tmp_path, named)) == 1  # the command names it as well


def test_one_process_finds_the_same_and_a_second_gives_its_answer(tmp_path: Path) -> None:
    alone = search(_asked(), workers=1, show=False).as_dict()
    first = search_together(tmp_path / "shared", _asked(), workers=1, show=False)
    again = search_together(tmp_path / "shared", _asked(), workers=1, show=False)
    for key in SAME:
        assert _bare(first[key]) == _bare(alone[key])
    assert again["run"] == first["run"]
    assert _bare(again["shortlist"]) == _bare(json.loads(json.dumps(first["shortlist"])))
    assert read_manifest(Path(first["run"]))["asked"]["recipe"]["run"]["folder"] == str(tmp_path / "shared")
    with pytest.raises(UserError, match=r"holds another search, of glyphs: give the same command"):
        search_together(tmp_path / "shared", _asked("steps=5"), workers=1, show=False)


def test_ranks_and_a_shared_folder_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--storage and run\.ranks both divide"):
        search_together(tmp_path / "shared", _asked("steps=4", "run.ranks=2"), show=False)
    assert not (tmp_path / "shared").exists()


@pytest.mark.slow
@pytest.mark.parametrize("killed", [None, 0, 1])
def test_processes_share_a_search_and_one_goes_on_where_another_is_killed(
    killed: int | None, tmp_path: Path
) -> None:
    items = [*RACE, "steps=400"]
    alone = search(understand("glyphs", items, validate=False), workers=1, show=False).as_dict()
    folder = tmp_path / "shared"
    command = [sys.executable, "-m", "innerloop", "search", "glyphs", *items, "--storage", str(folder)]

    def start(number: int) -> subprocess.Popen[str]:
        out = (tmp_path / f"{number}.json").open("w")
        return subprocess.Popen([*command, "--json", "-j", "1"], stdout=out, text=True, env=dict(os.environ))

    processes = [start(0)]
    wait_until(lambda: any(folder.glob("*/*/manifest.json")))
    processes.append(start(1))
    if killed is not None:
        wait_until(lambda: any(folder.glob("*/*/candidates/*/rung-1.json")))
        processes[killed].send_signal(signal.SIGKILL)
    for number, process in enumerate(processes):
        assert process.wait(PATIENCE) == (-signal.SIGKILL if number == killed else 0)
        if number != killed:
            printed = json.loads((tmp_path / f"{number}.json").read_text())
            for key in SAME:
                assert _bare(printed[key]) == _bare(json.loads(json.dumps(alone[key])))
    assert len(list(folder.glob("*/*/result.json"))) == 1
