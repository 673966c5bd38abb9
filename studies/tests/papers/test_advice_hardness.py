"""What stands behind ``advice-hardness``: halves of groups, and a row that can come out either way."""

from __future__ import annotations

from pathlib import Path

import pytest

from innerloop import glyphs
from innerloop.tasks.hard_groups import groups_of
from innerloop_studies.papers.further.advice_hardness import _row, without_half
from innerloop_studies.reproduce import find


def test_halves_share_no_group_and_are_swapped() -> None:
    source = glyphs()
    first, second = without_half(source, 0), without_half(source, 1)
    groups = [set(groups_of(first, part)) for part in ("train", "test")]
    assert not groups[0] & groups[1]
    assert groups[0] | groups[1] == set(groups_of(source, "all"))
    assert (first.splits["train"] == second.splits["test"]).all()
    assert (first.splits["test"] == second.splits["train"]).all()


@pytest.mark.parametrize(("order", "holds"), [(1, True), (-1, False)])
def test_the_row_can_come_out_either_way(order: int, holds: bool) -> None:
    before = {f"group {i}": i / 40 for i in range(20)}
    after = {name: 0.5 + order * error / 2 for name, error in before.items()}
    found = _row("omniglot", "maml", [(before, after)], "cpu")
    assert found.holds is holds
    assert found.ours.startswith("1.00 [1.00" if holds else "-1.00 [")


@pytest.mark.slow
def test_smoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = find("advice-hardness")("smoke", lambda _: None)
    assert all(row.ok for row in found.rows)
    assert len(found.rows) == 2
