"""What stands behind ``rate-unseen``: other rules read off by hand, rows that can come out either way."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from innerloop.papers.further.rate_runs import Case
from innerloop.papers.further.rate_table import GRID, Entry
from innerloop.papers.further.rate_unseen import Unseen, _rows, cases
from innerloop.reproduce import find

SCORES = [0.2, 0.2, 0.3, 0.4, 0.5, 0.4, 0.3, 0.2]


def test_rules_are_read_off_between_the_rates_of_the_grid() -> None:
    entry = Entry(Case("omniglot", 5, "none", 4, 5), SCORES, auto=0.5, rate=0.3)
    regrets = Unseen(entry, {"gradient": 0.2, "trace": 1.8}).rules()
    # the middle is 0.6, the ends 0.2 and 1.8; the root of the steps is 2
    assert regrets["the point"] == pytest.approx(0.0)
    assert regrets["the lower end"] == pytest.approx(0.1)
    share = math.log(0.6 / 0.3) / math.log(1 / 0.3)
    assert regrets["not divided"] == pytest.approx(0.1 * share)
    share = math.log(0.3 / 0.15) / math.log(0.3 / 0.1)
    assert regrets["divided by the steps"] == pytest.approx(0.1 * share)


@pytest.mark.parametrize(("regret", "holds"), [(0.005, True), (0.02, False)])
def test_rows_can_come_out_either_way(regret: float, holds: bool) -> None:
    """At every rate but the best the accuracy is lower by the same, and no rule hits the best."""
    scores = [0.5 - regret] * len(GRID)
    scores[-1] = 0.5
    table = [
        Unseen(Entry(case, scores, 0.5 - regret, 0.1), {"gradient": 0.1, "trace": 0.3})
        for case in cases("cpu")
    ]
    rows = _rows(table)
    assert [row.holds for row in rows] == [holds] * len(rows)
    assert f"{16 * 2 if holds else 0} of 32 within one" in rows[4].ours


def test_the_study_covers_what_it_says() -> None:
    every = cases("cpu")
    assert len(every) == len(set(every)) == 32
    assert {case.steps for case in every} == {1, 3, 5, 10}
    assert {case.shots for case in every} == {1, 5}
    assert max(GRID) / min(GRID) > 1000


@pytest.mark.slow
def test_smoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = find("rate-unseen")("smoke", lambda _: None)
    assert all(row.ok for row in found.rows)
