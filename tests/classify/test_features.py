"""Features once: kept as they come, found again by content, whatever happens in between."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import itertools
import os
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import innerloop as il
from innerloop.classify import Backbone, TimeLeft, backbones, extract, open_backbone
from innerloop.classify import cache as caching
from innerloop.classify.backbones import ALIKE, onnxruntime_forward, read_backbone, write_backbone
from innerloop.classify.cache import FeatureFiles, digests
from innerloop.classify.features import Way, _parts, plans_for, run_parts
from innerloop.classify.inputs import pictures_in
from innerloop.core.errors import UserError
from innerloop.core.preprocessing import Preprocessing
from innerloop.core.tensors import write_tensors
from innerloop.data import from_arrays
from innerloop.nets import conv4, efficientnet_lite
from innerloop.nets.efficientnet_lite import onnx_efficientnet_lite
from innerloop.nets.pretrained import overlap
from innerloop.testing.closeness import SINGLE, SINGLE_SUMMED, assert_close
from innerloop.training.execution.plan import Plan

LOOK = Preprocessing((16, 16), "share", share=0.9, mean=(0.5,) * 3, std=(0.25,) * 3)


def small(seed: int = 0, how: Preprocessing = LOOK) -> Backbone:
    net = conv4(3, 16, 5, filters=4, norm="running")
    params, buffers = net.init(torch.Generator().manual_seed(seed))
    return Backbone("conv4", net, params, buffers, how, "drawn here")


def save_pictures(folder: Path, count: int = 10, side: int = 24) -> list[Path]:
    folder.mkdir(exist_ok=True)
    draw = np.random.default_rng(0)
    files = [folder / f"{i}.png" for i in range(count)]
    for file in files:
        Image.fromarray(draw.integers(0, 256, (side, side + 6, 3), dtype=np.uint8)).save(file)
    return files


def by_hand(backbone: Backbone, files: list[Path]) -> torch.Tensor:
    """One picture after the other, in float64, by nothing of what is tested but the network itself."""
    rows = []
    for file in files:
        with Image.open(file) as opened:
            picture = opened.convert("RGB")
        side = int(0.9 * min(picture.size))
        left, top = (picture.width - side + 1) // 2, (picture.height - side + 1) // 2
        cut = picture.crop((left, top, left + side, top + side)).resize((16, 16), Image.Resampling.BICUBIC)
        x = torch.from_numpy(np.asarray(cut, np.float64).transpose(2, 0, 1) / 255)[None]
        params = {name: p.double() for name, p in backbone.params.items()}
        buffers = {name: b.double() for name, b in backbone.buffers.items()}
        rows.append(backbone.network.features(params, buffers, (x - 0.5) / 0.25, "stored")[0])
    return torch.cat(rows)


def test_features_are_those_of_a_loop(tmp_path: Path) -> None:
    files, net = save_pictures(tmp_path / "pictures"), small()
    features = extract(net, files, cache=tmp_path / "cache", batch=3)
    assert features.values.dtype == np.float32
    assert_close(torch.from_numpy(features.values).double(), by_hand(net, files), (SINGLE_SUMMED, SINGLE))
    assert features.names == [str(file) for file in files]
    assert features.rows.tolist() == list(range(10))
    assert (features.computed, features.skipped) == (10, [])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_number_of_threads_changes_nothing_and_is_given_back(threads: int, tmp_path: Path) -> None:
    files, net = save_pictures(tmp_path / "pictures", 23), small()
    before = torch.get_num_threads()
    one = extract(net, files, cache=False, batch=2, threads=1)
    several = extract(net, files, cache=False, batch=2, threads=threads)
    assert np.array_equal(one.values, several.values)
    assert torch.get_num_threads() == before


def test_the_second_time_nothing_is_computed(tmp_path: Path) -> None:
    files, net = save_pictures(tmp_path / "pictures"), small()
    first = extract(net, files, cache=tmp_path / "cache")
    more = save_pictures(tmp_path / "pictures", 12)
    copy = tmp_path / "copy.png"
    copy.write_bytes(files[3].read_bytes())
    again = extract(net, [*files[::-1], more[10], copy, copy], cache=tmp_path / "cache")
    assert again.computed == 1  # the new one; a copy is known by its content
    np.testing.assert_array_equal(again.values[:10], first.values[::-1])
    np.testing.assert_array_equal(again.values[11:], first.values[[3, 3]])
    os.utime(files[0])  # another time is no other picture
    assert extract(net, files, cache=tmp_path / "cache").computed == 0
    files[0].write_bytes(files[1].read_bytes())
    assert extract(net, files, cache=tmp_path / "cache").computed == 0
    Image.new("RGB", (30, 30), (1, 2, 3)).save(files[0])
    assert extract(net, files, cache=tmp_path / "cache").computed == 1


def test_files_that_have_not_changed_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items, cache = pictures_in(save_pictures(tmp_path / "pictures", 4)), tmp_path / "cache"
    first = digests(items, cache, 2)
    assert not cache.exists()  # they are seconds old: they may change once more without a later time
    assert digests(items, cache, 2, clock=lambda: time.time() + 10) == first
    with monkeypatch.context() as patch:
        patch.setattr("innerloop.classify.inputs.read_bytes", lambda _: pytest.fail("a file is read again"))
        assert digests(items[::-1], cache, 1) == first[::-1]
    path = items[1].given
    assert isinstance(path, Path)
    before, changed = path.stat(), path.read_bytes()[:-1] + b"?"
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # clocks of file systems are coarse
        path.write_bytes(changed)  # as long as before, and with its old time
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    again = digests(items, cache, 1)
    assert again[1] == hashlib.sha256(changed).digest()
    assert [again[i] for i in (0, 2, 3)] == [first[i] for i in (0, 2, 3)]
    path.unlink()
    assert isinstance(digests(items, cache, 1)[1], str)


def test_everything_that_decides_is_part_of_the_key(tmp_path: Path) -> None:
    net = small()
    other = dict(net.params)
    other["conv0.weight"] = other["conv0.weight"] + 1e-7
    head = {**net.params, "head.weight": net.params["head.weight"] + 1}
    changed = [
        net._replace(params=other),
        net._replace(buffers={n: b + 1e-3 for n, b in net.buffers.items()}),
        net._replace(preprocessing=LOOK._replace(share=0.8)),
        net._replace(preprocessing=LOOK._replace(mean=(0.5, 0.5, 0.51))),
        net._replace(name="conv4-other"),
        net._replace(settings={"pooling": "mean"}),
    ]
    keys = {backbone.fingerprint for backbone in (net, *changed)}
    assert len(keys) == 7
    assert net._replace(params=head).fingerprint == net.fingerprint == small().fingerprint
    files = save_pictures(tmp_path / "pictures", 2)
    for backbone in (net, changed[0]):
        assert extract(backbone, files, cache=tmp_path / "cache").computed == 2


def test_what_was_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    files, net = save_pictures(tmp_path / "pictures", 20), small()

    def stop(what: str, done: int, total: int) -> None:
        if done >= 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract(net, files, cache=tmp_path / "cache", batch=2, threads=1, progress=stop)
    again = extract(net, files, cache=tmp_path / "cache", batch=2, threads=1)
    assert again.computed == 12
    np.testing.assert_array_equal(again.values, extract(net, files, cache=False).values)


def test_the_same_pictures_go_together_after_an_interruption(tmp_path: Path) -> None:
    """The last bits of features depend on how many pictures go through the network at a time."""
    items = pictures_in(save_pictures(tmp_path / "pictures", 11))
    digests = [item.digest() for item in items]
    pairs = dict(zip(digests, zip(items, digests, strict=True), strict=True))

    def together(kept: list[int]) -> list[list[int]]:
        known = {digests[i] for i in kept}
        waiting = [pairs[digest] for digest in digests if digest not in known]
        parts = _parts(waiting, known, [*digests, digests[0], "damaged"], 4)
        return [[digests.index(digest) for _, digest in part] for part in parts]

    undisturbed = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    assert together([]) == undisturbed
    assert together([0, 1, 2, 3]) == undisturbed[1:]
    assert together([4, 5, 6, 7, 8, 9, 10]) == undisturbed[:1]
    assert together([1, 2, 8]) == [[4, 5, 6, 7], [0, 3, 9, 10]]  # new pictures among old ones


def rows_of(count: int, dimension: int = 3) -> tuple[list[bytes], Any]:
    draw = np.random.default_rng(count)
    return [bytes([i]) * 32 for i in range(count)], draw.random((count, dimension), np.float32)


@pytest.mark.parametrize("cut", ["keys", "values", "both"])
def test_half_a_row_is_not_read_and_the_next_writer_mends_it(cut: str, tmp_path: Path) -> None:
    digests, values = rows_of(5)
    with FeatureFiles(tmp_path, 3) as files:
        files.add(digests, values)
    for name, size in (("0.keys", 36), ("0.values", 12)):
        if cut in (name[2:], "both"):
            os.truncate(tmp_path / name, 4 * size + 5)
    with FeatureFiles(tmp_path, 3) as files:
        rows = files.find(digests)
        assert list(rows) == digests[:4]
        files.add([b"x" * 32], values[:1] + 1)
        files.add(digests[4:], values[4:])
    with FeatureFiles(tmp_path, 3) as files:
        rows = files.find([*digests, b"x" * 32])
    assert len(rows) == 6
    for digest, row in zip(digests, values, strict=True):
        np.testing.assert_array_equal(rows[digest], row)
    np.testing.assert_array_equal(rows[b"x" * 32], values[0] + 1)


def test_a_damaged_row_is_computed_again(tmp_path: Path) -> None:
    files, net = save_pictures(tmp_path / "pictures", 4), small()
    first = extract(net, files, cache=tmp_path / "cache", threads=1)
    (stored,) = (tmp_path / "cache").glob("*/0.values")
    data = bytearray(stored.read_bytes())
    data[4 * net.dimension + 2] ^= 1  # one bit of the second picture
    stored.write_bytes(data)
    again = extract(net, files, cache=tmp_path / "cache", threads=1)
    assert again.computed == 1
    np.testing.assert_allclose(
        again.values, first.values, rtol=SINGLE_SUMMED, atol=SINGLE
    )  # computed alone this time
    assert extract(net, files, cache=tmp_path / "cache").computed == 0  # the later row counts


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    digests, values = rows_of(4)
    with FeatureFiles(tmp_path, 3) as one, FeatureFiles(tmp_path, 3) as two:
        one.add(digests[:1], values[:1])
        two.add(digests[1:3], values[1:3])
        one.add(digests[3:], values[3:])
        assert {file.name for file in tmp_path.glob("*.values")} == {"0.values", "1.values"}
        assert set(two.find(digests)) == set(digests)
    with FeatureFiles(tmp_path, 3) as third:
        third.add([b"y" * 32], values[:1])
    assert {file.name for file in tmp_path.glob("*.values")} == {"0.values", "1.values"}


def test_where_nothing_can_be_kept_features_are_computed_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, net = save_pictures(tmp_path / "pictures", 3), small()
    (tmp_path / "cache").write_text("a file where a folder is wanted")
    features = extract(net, files, cache=tmp_path / "cache", batch=1)
    assert features.computed == 3
    assert capsys.readouterr().err.count("features are not kept") == 1


def test_damaged_pictures_are_all_named_or_left_out(tmp_path: Path) -> None:
    files, net = save_pictures(tmp_path / "pictures", 6), small()
    files[1].write_bytes(b"no picture")
    files[2].write_bytes(files[3].read_bytes()[:300])
    files[4].unlink()
    (tmp_path / "empty.png").write_bytes(b"")
    asked: list[Any] = [*files, tmp_path / "empty.png", tmp_path / "pictures"]
    with pytest.raises(UserError) as refused:
        extract(net, asked, cache=tmp_path / "cache")
    for name in ("1.png (it is of no known format)", "2.png (", "4.png (there is no such file)", "empty.png"):
        assert name in str(refused.value)
    assert "\n" not in str(refused.value)
    features = extract(net, asked, cache=tmp_path / "cache", on_bad="skip")
    assert features.computed == 0  # those that could be read were kept
    assert features.rows.tolist() == [0, 3, 5]
    assert [Path(name).name for name, _ in features.skipped] == [
        "1.png",
        "2.png",
        "4.png",
        "empty.png",
        "pictures",
    ]
    assert features.values.shape == (3, net.dimension)


def test_nothing_is_asked_and_nothing_comes(tmp_path: Path) -> None:
    assert extract(small(), [], cache=tmp_path / "cache").values.shape == (0, small().dimension)


def test_pictures_may_be_given_as_anything(tmp_path: Path) -> None:
    net = small()
    (file,) = save_pictures(tmp_path / "pictures", 1)
    with Image.open(file) as opened:
        picture = opened.convert("RGB")
    array = np.asarray(picture)
    expected = extract(net, file, cache=False).values
    grey = np.asarray(picture.convert("L"))
    of_grey = extract(net, picture.convert("L"), cache=False).values
    get = functools.partial(extract, net, cache=False)
    for given in (
        *(str(file), [str(file)], picture, [picture], array, array[None], [array]),
        *(array / np.float32(255), np.moveaxis(array, -1, 0), torch.from_numpy(array.copy())),
        torch.from_numpy(np.moveaxis(array, -1, 0).copy())[None],
    ):
        np.testing.assert_array_equal(get(given).values, expected)
    for given in (grey, grey[None], [grey], grey[:, :, None]):
        np.testing.assert_array_equal(get(given).values, of_grey)
    source = from_arrays(np.stack([array, array[::-1]]), [0, 1], name="two")
    assert get(source).names == [source.files(0), source.files(1)]
    np.testing.assert_allclose(get(source).values[:1], expected, rtol=SINGLE_SUMMED, atol=SINGLE)
    for wrong in (3, [3], np.zeros((2, 2, 2, 2, 2)), [np.zeros((2, 2, 2, 2))], [None]):
        with pytest.raises(UserError):
            pictures_in(wrong)
    with pytest.raises(UserError, match="cannot be read as pictures: picture 0"):
        get(np.full((20, 20), 7.5))


def test_a_giant_picture_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = save_pictures(tmp_path / "pictures", 2)
    monkeypatch.setattr("innerloop.data.pictures.MOST_PIXELS", 24 * 30 - 1)
    with pytest.raises(UserError, match="30×24 pixels, more than the"):
        extract(small(), files, cache=False)


def test_weights_that_give_no_numbers_are_refused(tmp_path: Path) -> None:
    net = small()
    broken = net._replace(params={**net.params, "conv0.weight": net.params["conv0.weight"] * float("nan")})
    with pytest.raises(UserError, match="not numbers"):
        extract(broken, save_pictures(tmp_path / "pictures", 2), cache=tmp_path / "cache")


def test_progress_is_told_with_the_time_left() -> None:
    ticks = itertools.count(step=2)
    lines: list[str] = []
    tell = TimeLeft(lines.append, every=4.0, clock=lambda: float(next(ticks)))
    for done in range(0, 101, 10):
        tell("features", done, 100)
    assert lines[0] == "features: 20 of 100 pictures, about 16 s left"
    assert len(lines) == 5


def test_the_time_left_leaves_out_warming_up() -> None:
    """The first eight took a minute, the others take a second each."""
    ticks = iter([0.0, 60.0, 61.0, 66.0])
    lines: list[str] = []
    tell = TimeLeft(lines.append, every=5.0, clock=lambda: next(ticks))
    for done in (0, 8, 9, 14):
        tell("features", done, 24)
    assert lines == ["features: 8 of 24 pictures", "features: 14 of 24 pictures, about 10 s left"]


def test_progress_counts_what_is_computed(tmp_path: Path) -> None:
    files, net = save_pictures(tmp_path / "pictures", 6), small()
    told: list[tuple[str, int, int]] = []
    extract(net, files[:2], cache=tmp_path / "cache")
    extract(net, files, cache=tmp_path / "cache", batch=2, progress=lambda *all_of: told.append(all_of))
    assert told == [("features", 0, 4), ("features", 2, 4), ("features", 4, 4)]


def test_the_faster_plan_does_the_rest() -> None:
    now = [0.0]
    used: list[int] = []

    def work(part: int) -> int:
        threads = torch.get_num_threads()
        used.append(threads)
        now[0] += 1.0 if threads == 2 else 3.0
        return part * part

    parts, told = list(range(80)), list[Plan]()
    ways = [Way("torch", plan, work) for plan in plans_for(2)]
    run = functools.partial(run_parts, ways=ways, say=told.append, clock=lambda: now[0])
    assert list(run(parts)) == [part * part for part in parts]
    assert set(used[:6]) == {1}
    assert set(used[6:]) == {2}  # one worker with two threads took a third of the time
    assert told[0].mode == "loop"
    assert "torch threads@2 3000.0 ms, torch loop@2 1000.0 ms a part" in told[0].reason
    used.clear()
    list(run(parts[:10]))
    assert set(used) == {1}  # too few to compare
    assert "too few to compare" in told[1].reason
    assert plans_for(1) == [Plan("loop", 1)]


def test_as_many_ways_are_compared_as_there_are_parts_for() -> None:
    now, used = [0.0], list[str]()

    def way(name: str, seconds: float) -> Way[int, int]:
        def work(part: int) -> int:
            used.append(name)
            now[0] += seconds
            return part

        return Way(name, Plan("loop", 1), work)

    ways = [way("slow", 3.0), way("quick", 1.0), way("quicker", 0.5)]
    for count, compared, best in ((12, 1, "slow"), (25, 2, "quick"), (37, 3, "quicker")):
        used.clear()
        assert list(run_parts(range(count), ways, clock=lambda: now[0])) == list(range(count))
        assert (len(set(used)), used[-1]) == (compared, best)


# ---- by onnxruntime ----


def lite(side: int = 32, seed: int = 0) -> Backbone:
    """EfficientNet-Lite0 whose statistics are not those of a start, for small pictures."""
    net = efficientnet_lite(3, 32, 5, norm="running")
    generator = torch.Generator().manual_seed(seed)
    params, buffers = net.init(generator)
    buffers = {n: v + 0.2 * torch.rand(v.shape, generator=generator) for n, v in buffers.items()}
    return Backbone("efficientnet-lite0", net, params, buffers, LOOK._replace(size=(side, side)), "drawn")


def apart(one: Any, other: Any) -> float:
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


def in_double(net: Backbone, x: torch.Tensor) -> torch.Tensor:
    params = {name: p.double() for name, p in net.params.items()}
    buffers = {name: b.double() for name, b in net.buffers.items()}
    return net.network.features(params, buffers, x.double(), "stored")[0]


has_onnxruntime = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("onnx", "onnxruntime"))), reason="pip install 'innerloop[fast]'"
)


@pytest.mark.parametrize("side", [32, 45, 75])
@pytest.mark.parametrize("by", ["torch", pytest.param("onnxruntime", marks=has_onnxruntime)])
def test_features_are_those_of_the_network(by: str, side: int) -> None:
    """Sides whose halvings are even or odd: padding is TensorFlow's."""
    net, told = lite(side), list[str]()
    x = torch.randn(3, 3, side, side, generator=torch.Generator().manual_seed(1))
    forward = net.forward() if by == "torch" else onnxruntime_forward(net, told.append)
    assert forward is not None, told
    with torch.inference_mode():
        values = forward(x.contiguous(memory_format=torch.channels_last))
        assert apart(values, in_double(net, x)) < ALIKE
    assert apart(net.forward()(x.requires_grad_()).detach(), values) < ALIKE  # without fused layers


@has_onnxruntime
def test_onnxruntime_computes_where_it_is_quicker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here torch is slow; features that either has kept are the other's."""
    net, files = lite(), save_pictures(tmp_path / "pictures", 26)
    slow = net.forward()
    monkeypatch.setattr(Backbone, "forward", lambda *_: lambda x: (time.sleep(0.05), slow(x))[1])
    few = extract(net, files[:20], cache=tmp_path / "cache", batch=1, threads=1)
    assert few.plan is not None
    assert few.plan.reason == "torch: too few to compare"
    found = extract(net, files, cache=False, batch=1, threads=1)
    assert found.plan is not None
    assert found.plan.reason.startswith("onnxruntime: fastest of those measured: torch loop@1 ")
    assert apart(found.values[:20], few.values) < ALIKE
    rest = extract(net, files, cache=tmp_path / "cache", batch=1, threads=1)
    assert rest.computed == 6
    np.testing.assert_array_equal(rest.values[:20], few.values)
    again = extract(net, files, cache=tmp_path / "cache")
    assert (again.computed, again.plan) == (0, None)
    np.testing.assert_array_equal(again.values, rest.values)


@has_onnxruntime
def test_what_onnxruntime_kept_before_a_kill_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, files = lite(), save_pictures(tmp_path / "pictures", 40)
    slow = net.forward()
    monkeypatch.setattr(Backbone, "forward", lambda *_: lambda x: (time.sleep(0.05), slow(x))[1])

    def stop(_: str, done: int, __: int) -> None:
        if done == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract(net, files, cache=tmp_path / "cache", batch=1, threads=1, progress=stop)
    monkeypatch.undo()
    rest = extract(net, files, cache=tmp_path / "cache", batch=1, threads=1)
    assert rest.computed == 10
    assert apart(rest.values, extract(net, files, cache=False, batch=1, threads=1).values) < ALIKE


@has_onnxruntime
def test_where_onnxruntime_cannot_torch_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    net, files = lite(), save_pictures(tmp_path / "pictures", 26)
    right = extract(net, files, cache=False, threads=1)

    def fails(*_: Any) -> bytes:
        raise RuntimeError("no such operator\nin a long story")

    def of_others(version: int, params: Any, buffers: Any) -> bytes:
        return onnx_efficientnet_lite(version, lite(seed=1).params, buffers)

    for broken, said in (
        (fails, "no such operator"),
        (of_others, "its features differ by"),
        (lambda *_: b"no graph", ""),
    ):
        monkeypatch.setattr(backbones, "onnx_efficientnet_lite", broken)
        found = extract(net, files, cache=False, batch=1, threads=1)
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"torch computes the features, since onnxruntime cannot: {said}")
        assert found.plan is not None
        assert found.plan.reason.startswith("torch: ")
        assert apart(found.values, right.values) < ALIKE
    monkeypatch.setattr(backbones, "find_spec", lambda _: None)  # not installed: nothing to say
    assert onnxruntime_forward(net) is None
    monkeypatch.undo()
    assert onnxruntime_forward(small()) is None
    assert not capsys.readouterr().err


@has_onnxruntime
def test_bad_pictures_and_bad_weights_are_told_as_by_torch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net, files = lite(), save_pictures(tmp_path / "pictures", 30)
    files[2].write_bytes(b"no picture")
    files[29].unlink()
    found = extract(net, files, cache=False, batch=1, threads=1, on_bad="skip")
    assert found.plan is not None
    assert "onnxruntime loop@1" in found.plan.reason  # it took part
    assert (len(found.values), len(found.skipped)) == (28, 2)
    assert not capsys.readouterr().err
    for layer in ("stem", "top"):
        weight = net.params[f"{layer}.weight"].clone()
        weight[0] = float("nan")  # which neither library's ReLU6 may make a number of
        broken = net._replace(params={**net.params, f"{layer}.weight": weight})
        for some in (files[3:5], files[3:29]):
            with pytest.raises(UserError, match="not numbers"):
                extract(broken, some, cache=False, batch=1, threads=1)


def test_onnxruntime_is_loaded_where_it_may_pay(tmp_path: Path) -> None:
    save_pictures(tmp_path, 20)
    code = (
        "import sys; from classify.test_features import *\n"
        "files = sorted(Path(sys.argv[1]).glob('*.png'))\n"
        "extract(lite(), files, cache=False, batch=1, threads=1)\n"
        "extract(small(), 3 * files, cache=False, batch=1, threads=1)\n"
        "assert not {'onnx', 'onnxruntime'} & sys.modules.keys()"
    )
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    env = {**os.environ, "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=300, env=env)


# ---- opening ----


def test_weights_from_a_file(tmp_path: Path) -> None:
    net = small(seed=3)
    file = tmp_path / "mine.safetensors"
    write_tensors(file, {**net.params, **net.buffers})
    opened = open_backbone("conv4", weights=file, preprocessing=LOOK, settings={"filters": 4})
    assert opened.weights == str(file)
    x = torch.rand(2, 3, 16, 16)
    assert torch.equal(opened.forward()(x), net.forward()(x))
    body = {n: v for n, v in {**net.params, **net.buffers}.items() if not n.startswith("head")}
    write_tensors(file, body)  # features do without a last layer
    other = open_backbone("conv4", weights=file, preprocessing=LOOK, settings={"filters": 4})
    assert other.fingerprint == opened.fingerprint
    write_tensors(file, net.params)
    with pytest.raises(UserError, match="no statistics"):
        open_backbone("conv4", weights=file, preprocessing=LOOK, settings={"filters": 4})


def test_a_backbone_in_a_file(tmp_path: Path) -> None:
    net = small(seed=5)._replace(settings={"filters": 4}, seen="ImageNet-1k", licence="MIT")
    file = write_backbone(tmp_path / "mine.safetensors", net)
    again = read_backbone(file)
    x = torch.rand(2, 3, 16, 16)
    assert torch.equal(again.forward()(x), net.forward()(x))
    assert (again.fingerprint, again.about()) == (net.fingerprint, net.about())
    with pytest.raises(UserError, match="code that a file cannot hold"):
        write_backbone(file, net._replace(name="mine:net"))
    with pytest.raises(UserError, match="there is no file"):
        read_backbone(tmp_path / "other.safetensors")
    write_tensors(file, net.params)
    with pytest.raises(UserError, match="holds no backbone"):
        read_backbone(file)
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(UserError, match="damaged"):
        read_backbone(file)


def test_what_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'efficientnet-lite"):
        open_backbone("efficientnet-lite")
    with pytest.raises(UserError, match="how pictures must look for conv4"):
        open_backbone("conv4")
    with pytest.raises(UserError, match="give weights="):
        open_backbone("conv4", preprocessing=LOOK)
    with pytest.raises(UserError, match=r"not a \.safetensors file"):
        open_backbone("conv4", preprocessing=LOOK, weights=tmp_path / "x.pth")
    with pytest.raises(UserError, match="square"):
        open_backbone("efficientnet-lite0", preprocessing=Preprocessing((64, 32)))
    assert il.extract is extract


def test_timm_says_how_pictures_must_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in. The real library was not run."""
    from types import ModuleType, SimpleNamespace

    from innerloop.nets.pretrained import timm_preprocessing

    config = SimpleNamespace(
        input_size=(3, 224, 224), crop_pct=0.875, crop_mode="center", interpolation="bicubic",
        mean=(0.5,) * 3, std=(0.25,) * 3,
    )  # fmt: skip
    models = ModuleType("timm.models")
    models.get_pretrained_cfg = lambda name: config if name == "tiny" else None  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "timm", ModuleType("timm"))
    monkeypatch.setitem(__import__("sys").modules, "timm.models", models)
    expected = Preprocessing((256, 256), "short", crop=(224, 224), mean=(0.5,) * 3, std=(0.25,) * 3)
    assert timm_preprocessing("tiny") == expected
    with pytest.raises(UserError, match="no pretrained weights"):
        timm_preprocessing("other")


def test_weights_that_have_seen_the_classes_say_so() -> None:
    for name in ("mini-imagenet", "tiered-imagenet", "cifar-fs", "fc100", "cub"):
        assert "no test on new classes" in (overlap("ImageNet-1k", name) or "")
        assert "may have seen" in (overlap("unknown", name) or "")
    assert overlap("ImageNet-1k", "omniglot") is None
    assert overlap("unknown", "my-birds") is None


def test_the_checksum_is_of_the_row() -> None:
    assert caching._KEY.size == 36
    assert zlib.crc32(np.zeros(3, np.float32)) == zlib.crc32(bytes(12))
