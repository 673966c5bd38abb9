"""A search whose candidates are divided among ranks finds what one process finds."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from innerloop.choose import PictureDraws, conv_space
from innerloop.choose.architectures.measure import Job
from innerloop.choose.architectures.pool import Bench
from innerloop.choose.pilot import following
from innerloop.choose.pilot.asked import Asked, understand
from innerloop.choose.pilot.keep import Sitting, begin
from innerloop.choose.pilot.problem import pose
from innerloop.choose.pilot.run import answer, search
from innerloop.cli import ranks as launching
from innerloop.core.errors import UserError
from innerloop.data.glyphs import glyphs
from innerloop.runs.manifest import read_manifest
from innerloop.training.execution.plain import from_leader, plain_out
from innerloop.training.execution.ranks import AllRanksError
from oracles.patience import PATIENCE, wait_until
from oracles.race import without_times as _bare
from oracles.rank_threads import in_ranks

pytestmark = pytest.mark.usefixtures("own_folder")

RACE = [
    *("space=convnet", "space.depths=[1,2]", "space.widths=[2,3]", "space.kernels=[3]", "repeats=1"),
    *("k=2", "pool=5", "steps=4", "episodes=4", "score=parameters,flops", "tasks.ways=5"),
]


def _asked(*items: str, validate: bool = False) -> Asked:
    return understand("glyphs", [*RACE, *items] if not validate else [*items], validate=validate)


# plain data


def test_plain_results_arrive_whole_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [0.1 * n for n in range(7)]
    expected = [{"value": item / 3, "none": None, "far": float("inf")} for item in items]

    def work(some: list[float]) -> list[dict[str, Any]]:
        return [{"value": item / 3, "none": None, "far": float("inf")} for item in some]

    for size in (2, 3):
        for together in (None, 1):
            results = in_ranks(size, lambda _, n=size, t=together: plain_out(work, items, n, t), monkeypatch)
            assert results == [expected] * size


def test_only_rank_0_decides_and_its_mistake_is_everybodys(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def make() -> dict[str, int]:
        made.append(1)
        return {"steps": 5}

    assert in_ranks(3, lambda _: from_leader(make, 3), monkeypatch) == [{"steps": 5}] * 3
    assert made == [1]

    def refuse() -> dict[str, int]:
        raise UserError("budget=1s is too small.")

    def caught(_: int) -> str:
        with pytest.raises(AllRanksError) as told:
            from_leader(refuse, 2)
        return str(told.value)

    assert in_ranks(2, caught, monkeypatch) == ["budget=1s is too small."] * 2


# measurements


def test_measurements_on_ranks_are_those_of_one_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Rank 0 has measured some before; only it knows, and only it keeps."""
    space = conv_space(1, 8, 5, depths=(1, 2), widths=(2, 3))
    draws = PictureDraws(glyphs(), seed=0, side=8, crops=20)
    jobs = [Job(space.candidate(n), ("parameters", "ntk"), repeat) for repeat in (0, 1) for n in range(4)]
    with Bench(space, draws, workers=1) as bench:
        expected = [measured.values for measured in bench.run(jobs)]
    kept = tmp_path / "scores.jsonl"
    with Bench(space, draws, workers=1, keep=kept) as bench:
        bench.run(jobs[:5])

    def work(rank: int) -> tuple[list[dict[str, float]], int]:
        ticks: list[bool] = []
        with Bench(space, draws, 1, None if rank else kept, ranks=3) as bench:
            measured = bench.run(jobs, lambda _, before: ticks.append(before))
        return [each.values for each in measured], sum(ticks)

    assert in_ranks(3, work, monkeypatch) == [(expected, 5)] * 3
    assert len(kept.read_text(encoding="utf-8").splitlines()) == len(jobs)


# whole searches


def _together(asked: Asked, ranks: int, patch: pytest.MonkeyPatch, *, validate: bool = False) -> list[Any]:
    """What every rank finds, each a thread."""
    run = begin(asked, glyphs(), validate=validate, argv=None)

    def work(rank: int) -> Any:
        sitting = Sitting(
            run, 1, 0.0, lambda: 0.0, lambda _: None, following.uncounted, ranks, leads=rank == 0
        )
        return answer(pose(asked), asked, sitting).as_dict()

    return in_ranks(ranks, work, patch)


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_race_on_ranks_ends_as_alone(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _asked()
    alone = search(asked, workers=1, show=False).as_dict()
    result = _together(asked, ranks, monkeypatch)
    expected = {key: alone[key] for key in ("shortlist", "chosen", "sentence", "rungs", "reliability")}
    for each in result:
        assert _bare({key: each[key] for key in expected}) == _bare(expected)


def test_a_validation_on_ranks_ends_as_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [*RACE[:5], "cells=5", "steps=3", "episodes=4", "tasks.ways=5"]
    asked = _asked(*items, validate=True)
    alone = search(asked, validate=True, workers=1, show=False).as_dict()
    first, second = _together(asked, 2, monkeypatch, validate=True)
    expected = _bare({key: alone[key] for key in ("table", "candidates", "reliability")})
    for each in (first, second):
        assert _bare({key: each[key] for key in ("table", "candidates", "reliability")}) == expected


def test_a_rank_that_does_not_see_the_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"does not see .*gone: put run\.folder on a file system"):
        following.take_part(None, tmp_path / "gone", 1)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("killed", [None, 1, 0])
def test_processes_find_what_one_finds_even_if_one_is_killed(
    killed: int | None, environment: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [item for item in RACE if not item.startswith("steps")] + ["steps=400"]
    alone = search(understand("glyphs", items, validate=False), workers=1, show=False).as_dict()
    folder, popen, started = tmp_path / "ranks", launching.subprocess.Popen, []

    def start(*arguments: Any, **options: Any) -> Any:
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(launching.subprocess, "Popen", start)

    def kill() -> None:
        wait_until(lambda: any(folder.glob("*/*/candidates/*/rung-1.json")))
        started[killed or 0].send_signal(signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    if killed is not None:
        killer.start()
    command = ["search", "glyphs", *items, "run.ranks=2", f"run.folder={folder}", "--json", "--quiet"]
    assert launching.launch(command, 2) == 0
    if killed is not None:
        killer.join(PATIENCE)
        assert len(started) == 4  # two ranks, twice
    (file,) = folder.glob("*/*/result.json")
    assert read_manifest(file.parent)["ranks"] == 2
    printed = json.loads(file.read_text(encoding="utf-8"))
    for key in ("shortlist", "chosen", "sentence", "rungs"):
        assert _bare(printed[key]) == _bare(json.loads(json.dumps(alone[key])))
