"""The benchmark of scores: both sides compute the same, and its rows are whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from innerloop.nets.cells import all_choices
from innerloop_studies.bench import harness, search, search_modules

SMALL = {"channels": 2, "cells": 2, "side": 8, "crops": 40, "candidates": 2}


@pytest.mark.parametrize("part", search.PARTS)
@pytest.mark.one_in(2)
def test_both_sides_compute_the_same(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("innerloop.choose.architectures.measure.available_cores", lambda: 1)
    by_side = {}
    for side in ("ours", "peer"):
        call = search.build({"part": part, "side": side, "sizes": SMALL, "threads": 1})
        by_side[side] = call().double().numpy()
        assert np.isfinite(by_side[side]).all()
    if part in search.PAIRS:
        assert by_side["ours"] == by_side["peer"]
    assert harness.disagreement(by_side, "peer") < 1e-3


@pytest.mark.skipif(not search_modules.has_opacus(), reason="Opacus is not installed")
def test_gradients_by_patches_are_opacus_own(monkeypatch: pytest.MonkeyPatch) -> None:
    x = search.noise_draw(0, {"side": 8, "crops": 1}).tasks.x_query.flatten(0, 1)
    outputs = [search._module(all_choices(), SMALL, 1)(x)]
    monkeypatch.setattr(search_modules, "has_opacus", lambda: False)
    outputs.append(search._module(all_choices(), SMALL, 1)(x))
    torch.testing.assert_close(*outputs)


def test_candidates_are_spread_over_the_round() -> None:
    few = search.candidates({**SMALL, "candidates": 7})
    assert len(set(few)) == 7
    assert {len(edge) for each in few for cell in each for edge in cell} == {6, 7}
    assert any(each.normal == all_choices().normal for each in few)


def test_our_round_measures_anew_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("innerloop.choose.architectures.measure.available_cores", lambda: 1)
    measured = []
    real = search.Bench._record
    monkeypatch.setattr(
        search.Bench, "_record", lambda self, key, one: (measured.append(key), real(self, key, one))
    )
    call = search.part_of_round(True, {**SMALL, "candidates": 1})
    assert torch.equal(call(), call())
    assert len(set(measured)) == 4


@pytest.mark.slow
def test_the_whole_way_through_real_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "machine", lambda quick: {"quick": quick})
    monkeypatch.setattr(search, "PARTS", {"regions": search.PARTS["regions, float32"]})
    monkeypatch.setattr(search, "available_cores", lambda: 1)
    result = search.run(quick=True, say=lambda _: None, sizes=SMALL)
    (row,) = result["cases"]
    assert row["case"] == "linear regions of the thin supernet, 40 crops"
    assert row["at_least"] == 3.5
    assert row["ours_ms"] > 0
    assert row["peer_ms"] > 0
    assert "identical counts" in row["notes"]
    assert result["machine"] == {"quick": True}


def test_a_search_is_extrapolated_by_the_operators_that_are_left() -> None:
    # 18 edges with 7 to 2 operators, in sevenths of the first network, and 14 edges at the end
    by_hand = 18 * (49 + 36 + 25 + 16 + 9 + 4) / 7 + 2
    assert search.whole_in_first_candidates(3.0) == pytest.approx(3.0 * by_hand)


def test_a_search_of_glyphs_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "GLYPHS", ("no-such-verb",))
    with pytest.raises(RuntimeError, match="no-such-verb failed"):
        search.glyphs(lambda _: None)


def test_a_quick_robust_search_is_told_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("innerloop.choose.architectures.measure.available_cores", lambda: 1)
    seconds, notes = search.robust_seconds({**SMALL, "candidates": 1}, quick=True)
    assert seconds > 0
    assert notes == "extrapolated from 2 measurements of the first round"
