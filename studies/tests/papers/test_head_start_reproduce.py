"""The reproductions about the start of the last layer: their smallest scale, and what their rows say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from innerloop.cli.main import main
from innerloop_studies.papers.bridge import frozen as bridge_frozen
from innerloop_studies.papers.further import maml_permutations
from innerloop_studies.papers.further.head_starts import HeadRun, PermutedRun


@pytest.mark.parametrize("name", ["bridge-frozen", "maml-permutations"])
@pytest.mark.one_in(2)
def test_the_smallest_scale_is_as_recorded(name: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", name, "--scale", "smoke", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert all(row["ok"] for row in told["rows"])
    assert (tmp_path / told["figure"]).stat().st_size > 10_000


def permuted(rows: list[list[float]], averaged: list[float]) -> PermutedRun:
    return PermutedRun(rows, averaged, averaged)


@pytest.mark.parametrize(("spread", "holds"), [(0.2, True), (0.02, False)])
def test_what_is_called_a_huge_variance(spread: float, holds: bool) -> None:
    learned = permuted([[0.5, 0.5 - spread], [0.6 - spread, 0.6]], [0.55, 0.62])
    runs = {"learned": [learned], "one-vector": [permuted([[0.7, 0.7], [0.8, 0.8]], [0.7, 0.8])]}
    rows = maml_permutations._rows(runs)
    assert rows[0].holds == holds
    assert f"best order less worst {100 * spread:.1f} ± 0.0 points" in rows[0].ours
    better = 0.75 - (0.55 - spread / 2)
    assert rows[2].ours.startswith(f"{100 * better:+.1f} ±")


def test_an_order_that_matters_to_equal_rows_is_told() -> None:
    same, other = [[0.4, 0.4]], [[0.4, 0.48]]
    for rows, holds in ((same, True), (other, False)):
        runs = {"learned": [permuted([[0.2, 0.4]], [0.4])], "one-vector": [permuted(rows, [0.4])]}
        assert maml_permutations._identities(runs, "cpu")[1].holds == holds


@pytest.mark.parametrize(("lost", "holds"), [(0.001, True), (0.005, True), (0.02, False)])
def test_what_is_called_no_drop(lost: float, holds: bool) -> None:
    scores = [0.4, 0.5, 0.6, 0.7]
    runs = {
        "learned": [HeadRun(scores, 0.1)],
        "frozen": [HeadRun([score - lost for score in scores], 0.0)],
    }
    row = bridge_frozen._drop(runs, "cpu")
    assert row.holds == holds
    assert f"{-100 * lost:+.2f} ± 0.00 points; by seed {-100 * lost:+.1f}" in row.ours
