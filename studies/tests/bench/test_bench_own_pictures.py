"""The benchmark of one's own pictures: both sides compute the same, and the row is whole."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from innerloop.nets import apply, efficientnet_lite
from innerloop.testing.closeness import CHAINED, SOLVED_ROUGHLY, assert_close
from innerloop_studies.bench import harness, onnx_peers, own_pictures
from innerloop_studies.bench.own_pictures_script import with_weights


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
        own_pictures.build({**spec, "side": "again"})()  # keeps them
        rows = {side: own_pictures.build({**spec, "side": side})() for side in ("first", "again", "script")}
    assert rows["script"].shape == (2, 1280)
    both = {"script@1": rows["script"], "ours": rows["first"]}
    assert harness.disagreement(both, "script@1", what="features") < SOLVED_ROUGHLY
    np.testing.assert_array_equal(rows["first"], rows["again"])
    with pytest.raises(RuntimeError, match="features differ"):
        harness.disagreement({**both, "ours": rows["first"] * 1.1}, "script@1", what="features")


def test_real_photographs_are_taken_where_they_are(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INNERLOOP_TEST_DATA", str(shared_data))
    with own_pictures.picture_files(3) as (files, what):
        assert what == "photographs of Tiny-ImageNet"
        assert all(file.read_bytes()[:2] == b"\xff\xd8" for file in files)


@pytest.mark.skipif(not find_spec("onnxruntime"), reason="pip install 'innerloop[fast]'")
def test_peers_compute_the_same_from_files_and_from_what_is_prepared(tmp_path: Path) -> None:
    with own_pictures.picture_files(5) as (files, _):
        written = own_pictures.write_for_peers(files, "drawn", str(tmp_path))
        base = {"files": [str(file) for file in files], "weights": "drawn", "threads": 2}
        rows = {
            f"{side}, {sorted(given)}": own_pictures.build({**base, **given, "side": side})()
            for side, given in (("script", {}), ("torch", written), ("onnxruntime", written))
        }
        for sessions in (1, 2):
            for given in (written, {"model": written["model"]}):
                spec = {**base, **given, "side": "onnxruntime", "sessions": sessions}
                rows[f"{sessions}, {sorted(given)}"] = onnx_peers.build(spec)()
    off = harness.disagreement(rows, "script, []", own_pictures.ALIKE, "features")
    assert len(rows) == 7
    assert off > 0  # they are not one library


def test_a_peer_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(own_pictures, "find_spec", lambda _: None)
    monkeypatch.setattr(own_pictures.environments, "_place", lambda _: Path("nowhere"))
    assert own_pictures.peer_sides({}, told.append) == []
    assert "openvino is not installed and left out" in told[0]


@pytest.mark.slow  # processes with torch to import
@pytest.mark.skipif(not find_spec("onnxruntime"), reason="pip install 'innerloop[fast]'")
def test_it_runs_and_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_pictures.harness, "machine", lambda: {"cores": 1})
    few = {"pictures": 25 * 7, "episodes": 6, "looped": 3, "shots": 1, "queries": 2}
    report = own_pictures.run(quick=True, say=lambda _: None, sizes=few)
    first, again, libraries, by_torch, by_onnxruntime, episodes, *command = report["cases"]
    assert (first["peer"], again["peer"], episodes["peer"]) == ("script", "ours, first time", "scikit-learn")
    for row in (libraries, by_torch, by_onnxruntime):
        assert row["peer"].partition("@")[0] in ("onnxruntime", "openvino")
        assert row["at_least"] == 1.0
    assert all(row["ratio"] > 0 for row in report["cases"])
    assert "ms a picture" in first["notes"]
    assert "that of the loop differs by" in episodes["notes"]
    assert all("% of the labels are right" in row["notes"] for row in command)


def test_episodes_on_features_are_those_of_the_loop(tmp_path: Path) -> None:
    labels = [f"c{i // 6}" for i in range(36)]
    draw = np.random.default_rng(0)
    means = np.repeat(draw.normal(size=(6, 8)), 6, axis=0)
    np.save(tmp_path / "f.npy", np.float32(means + draw.normal(size=(36, 8))))
    sizes = {"episodes": 12, "looped": 12, "shots": 2, "queries": 3}
    own_pictures.write_episodes(labels, sizes, tmp_path / "drawn.npz")
    files = {"features": str(tmp_path / "f.npy"), "drawn": str(tmp_path / "drawn.npz")}
    spec = {**files, "labels": labels, "sizes": sizes, "threads": 1}
    accuracies = {
        f"{side}@1": np.array(own_pictures.build({**spec, "side": side})())
        for side in ("ours", "scikit-learn")
    }
    assert own_pictures.accuracy_gap(accuracies, 12) == pytest.approx(0, abs=CHAINED)
    with pytest.raises(RuntimeError, match="differs from scikit-learn"):
        own_pictures.accuracy_gap({**accuracies, "ours@1": accuracies["ours@1"] - 0.1}, 12)


def test_examples_and_new_pictures_are_laid_out(tmp_path: Path) -> None:
    files = [tmp_path / f"c{c}" / f"{i}.jpg" for c in range(2) for i in range(7)]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"x")
    examples, new, truth = own_pictures.laid_out(files, tmp_path / "out")
    assert sorted(p.name for p in (examples / "c1").iterdir()) == [f"{i}.jpg" for i in range(5)]
    assert truth == {f"c{c}-{i}.jpg": f"c{c}" for c in range(2) for i in (5, 6)}
    assert sorted(p.name for p in new.iterdir()) == sorted(truth)


def test_the_module_of_the_script_is_our_network() -> None:
    net = efficientnet_lite(3, 64, 10, 0, norm="running")
    generator = torch.Generator().manual_seed(0)
    params, buffers = net.init(generator)
    buffers = {n: (v + 0.2 * torch.rand(v.shape, generator=generator)).double() for n, v in buffers.items()}
    params = {name: value.double() for name, value in params.items()}
    module = with_weights({**params, **buffers})
    for side in (64, 70):
        x = torch.randn(2, 3, side, side, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            assert_close(apply(net, params, buffers, x, "stored")[0], module(x))
