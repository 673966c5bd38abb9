"""The benchmark of one's own pictures: both sides compute the same, and the row is whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from innerloop.bench import own_pictures


def test_both_sides_compute_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INNERLOOP_TEST_DATA", raising=False)
    with own_pictures.picture_files(2) as (files, what):
        assert what == "pictures of noise"
        spec = {
            "files": [str(file) for file in files],
            "weights": "drawn",
            "threads": 1,
            "folder": str(tmp_path / "a"),
        }
        found = {side: own_pictures.build({**spec, "side": side})() for side in ("first", "again", "script")}
    assert found["script"].shape == (2, 1280)
    assert own_pictures._distance({"script@1": found["script"], "ours": found["first"]}) < 1e-4
    np.testing.assert_array_equal(found["first"], found["again"])
    with pytest.raises(RuntimeError, match="differ from the script"):
        own_pictures._distance({"script@1": found["script"], "ours": found["first"] * 1.1})


def test_real_photographs_are_taken_where_they_are(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INNERLOOP_TEST_DATA", str(shared_data))
    with own_pictures.picture_files(3) as (files, what):
        assert what == "photographs of Tiny-ImageNet"
        assert all(file.read_bytes()[:2] == b"\xff\xd8" for file in files)


@pytest.mark.slow  # four processes with torch to import
def test_it_runs_and_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_pictures.harness, "machine", lambda: {"cores": 1})
    found = own_pictures.run(quick=True, say=lambda _: None, sizes={"pictures": 3})
    first, again = found["cases"]
    assert (first["peer"], again["peer"]) == ("script", "ours, first time")
    assert first["ratio"] > 0
    assert "ms a picture" in first["notes"]
