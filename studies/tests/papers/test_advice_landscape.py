"""What stands behind ``advice-landscape``: environments, and rows that can come out either way."""

from __future__ import annotations

from pathlib import Path

import pytest

from innerloop_studies.papers.further.advice_landscape import Gains, environment, rows_of, smoke_rows
from innerloop_studies.reproduce import find


def test_environments_are_functions_of_their_number() -> None:
    assert environment(3) == environment(3)
    assert environment(3) != environment(4)
    assert len({environment(number)[1] for number in range(20)}) == 3


def test_rows_can_come_out_either_way() -> None:
    right = [Gains(g, 0.98 * g, 1.02 * g, g, 1.005 * g) for g in (1.0, 1.05, 1.3, 1.5, 2.0)]
    assert [row.holds for row in rows_of(right)] == [True] * 4
    turned = [one._replace(measured=3.0 - one.predicted) for one in right]
    assert [row.holds for row in rows_of(turned)] == [False] * 4
    assert rows_of(turned)[2].ours == "2 of 3"
    assert rows_of(turned)[3].ours == "0 of 2"
    assert smoke_rows(right)[0].holds
    assert not smoke_rows([right[0]._replace(predicted=2.0)])[0].holds


@pytest.mark.slow
def test_smoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = find("advice-landscape")("smoke", lambda _: None)
    assert all(row.ok for row in told.rows)
