"""What stands behind ``advice-race``: rows that can come out either way, and its smallest scale."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import pytest

from innerloop_studies.papers.further import advice_numbers
from innerloop_studies.papers.further.advice_race import _rows, regret
from innerloop_studies.papers.further.races import LongRun, RaceOutcome, RaceProblem, ShortRace, race_outcome
from innerloop_studies.reproduce import find


def problems(lost: float, decided: bool, seconds: float) -> list[RaceOutcome]:
    long = {"a": LongRun(0.7, 0.01, 9, 60.0), "b": LongRun(0.7 - lost, 0.01, 9, 60.0)}
    raced = ShortRace(["b", "a"], decided, {}, [], seconds)
    case = RaceProblem("glyphs", 5, 1)
    return [race_outcome(case, seed, long, raced, worst=0.0, regret=regret) for seed in range(10)]


def test_rows_can_come_out_either_way() -> None:
    good = [row.holds for row in _rows(problems(0.005, True, 12.0), "cpu")]
    assert good == [True, True, True, True]
    bad = [row.holds for row in _rows(problems(0.05, True, 30.0), "cpu")]
    assert bad == [True, False, False, False]
    modest = _rows(problems(0.05, False, 12.0), "cpu")
    assert modest[-1].holds  # nothing was called decided, so nothing was promised
    assert modest[-1].ours == "0 of 0"


@pytest.mark.slow
def test_smoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = find("advice-race")("smoke", lambda _: None)
    assert all(row.ok for row in found.rows)
    assert found.figures
    (one,) = found.data["problems"]
    assert set(one["order"]) >= {"protonet", "maml"}


def test_on_numbers_a_tenth_above_the_best_is_close() -> None:
    errors = {"a": 1.0, "b": 1.05, "c": None}
    long = {name: LongRun(error, 0.01, 9, 40.0) for name, error in errors.items()}
    case, raced = RaceProblem("sine", 0, 5), ShortRace(["b", "a", "c"], True, {}, [], 12.0)
    by_error = functools.partial(race_outcome, case, 0, long, worst=math.inf, regret=advice_numbers.regret)
    near = by_error(raced)
    assert (near.chosen, near.best, near.share) == ("b", "a", 0.1)
    assert near.regret == pytest.approx(0.05)
    assert by_error(raced._replace(order=["c", "b", "a"])).regret == math.inf
    assert [row.holds for row in advice_numbers._rows([near] * 10, "cpu")] == [True] * 4
    far = near._replace(regret=0.5)
    assert [row.holds for row in advice_numbers._rows([far] * 10, "cpu")] == [True, False, True, False]


@pytest.mark.slow
def test_numbers_smoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = find("advice-numbers")("smoke", lambda _: None)
    assert all(row.ok for row in found.rows)
    order = found.data["problems"][0]["order"]
    assert order
    assert set(order) <= {"maml", "pooled"}  # on a busy machine the budget may pay for one
