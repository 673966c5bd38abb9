"""What stands behind ``rate-unseen``: other rules read off by hand, rows that can come out either way."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from innerloop_studies.papers.further.rate_unseen import Unseen, _against_rules, _divisor, _rows, cases
from innerloop_studies.papers.further.rates import GRID, RateEntry, RateProblem
from innerloop_studies.reproduce import find

SCORES = [0.2, 0.2, 0.3, 0.4, 0.5, 0.4, 0.3, 0.2]


FORMS = {"gradient": 0.2, "trace": 1.8, "gradient, all": 0.1, "trace, all": 0.9}


def test_rules_are_read_off_between_the_rates_of_the_grid() -> None:
    entry = RateEntry(RateProblem("omniglot", 5, "none", 4, 5), SCORES, auto=0.5, rate=0.3)
    regrets = Unseen(entry, FORMS).rules()
    # the middle is 0.6, the ends 0.2 and 1.8; the root of the steps is 2
    assert regrets["the middle of the bracket"] == pytest.approx(0.0)
    assert regrets["both forms for all steps"] == pytest.approx(0.0)
    assert regrets["its lower end"] == pytest.approx(0.1)
    share = math.log(0.6 / 0.3) / math.log(1 / 0.3)
    assert regrets["the middle, not divided"] == pytest.approx(0.1 * share)
    share = math.log(0.3 / 0.15) / math.log(0.3 / 0.1)
    assert regrets["the middle, divided by the steps"] == pytest.approx(0.1 * share)
    share = math.log(0.9 / 0.3) / math.log(1 / 0.3)
    assert regrets["its upper end"] == pytest.approx(0.1 * share)


@pytest.mark.parametrize(("regret", "holds"), [(0.005, True), (0.02, False)])
def test_rows_can_come_out_either_way(regret: float, holds: bool) -> None:
    """At every rate but the best the accuracy is lower by the same, and no rule hits the best."""
    scores = [0.5 - regret] * len(GRID)
    scores[-1] = 0.5
    table = [Unseen(RateEntry(case, scores, 0.5 - regret, 0.1), FORMS) for case in cases("cpu")]
    rows = _rows(table)
    assert [row.holds for row in rows[:5]] == [holds] * 5
    assert f"{16 * 2 if holds else 0} of 32 within one" in rows[4].ours


@pytest.mark.parametrize(("best", "holds"), [(0.3, [True, False]), (1.0, [False, True])])
def test_another_rule_that_would_have_done_better_is_told(best: float, holds: list[bool]) -> None:
    """With four steps the middle of the bracket is 0.3, and its upper end 1.2."""
    scores = [0.5 if rate == best else 0.2 for rate in GRID]
    forms = {"gradient": 0.15, "trace": 2.4, "gradient, all": 0.01, "trace, all": 0.01}
    table = [
        Unseen(RateEntry(RateProblem("omniglot", 5, norm, 4, 5), scores, 0.5, 0.1), forms)
        for norm in ("transductive", "none")
    ]
    assert [_against_rules("words", [one]).holds for one in table] == holds


@pytest.mark.parametrize(("every", "holds"), [(0.2, True), (0.9, False), (0.04, False)])
def test_the_divisor_of_many_steps_is_compared_with_their_root(every: float, holds: bool) -> None:
    forms = {"gradient": 1.0, "trace": 1.0, "gradient, all": every**2, "trace, all": 1.0}
    table = [Unseen(RateEntry(case, SCORES, 0.5, 0.3), forms) for case in cases("cpu")]
    told = _divisor(table)
    assert told.holds is holds
    assert f"gradient {1 / every**2:.1f}, trace 1.0, middle {1 / every:.1f}" in told.ours


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
