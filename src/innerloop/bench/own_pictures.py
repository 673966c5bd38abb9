"""Your own pictures: features from files to vectors, against the script that a careful user writes.

Run as a module (``python -m innerloop.bench.own_pictures``) it is the child process of one side.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from innerloop.bench import harness
from innerloop.bench.harness import Say
from innerloop.bench.rows import Side, Timing, better, busy, comparison, on_threads
from innerloop.bench.worker import Worker, keep_freed_memory, serve

MODULE = "innerloop.bench.own_pictures"
NAME = "efficientnet-lite0"
PICTURES, QUICK = 500, 40
AT_LEAST = {"first": 2.0, "again": 50.0}
AGREE = 1e-3
"""Sides must have the same features: float32, relative to their norm."""
REAL = "tiny_imagenet_60.npz"
"""Photographs of 64×64 as JPEG files, in the folder that INNERLOOP_TEST_DATA names."""


@contextmanager
def picture_files(count: int) -> Iterator[tuple[list[Path], str]]:
    """So many picture files, and what they are: photographs where they are to be had, else noise."""
    with tempfile.TemporaryDirectory() as folder:
        named = os.environ.get("INNERLOOP_TEST_DATA", "")
        real = Path(named, REAL)
        made = list(_photographs(real, count)) if named and real.is_file() else list(_noise(count))
        files = [Path(folder, f"{number}.jpg") for number in range(len(made))]
        for file, data in zip(files, made, strict=True):
            file.write_bytes(data)
        what = "photographs of Tiny-ImageNet" if named and real.is_file() else "pictures of noise"
        yield files, what


def _photographs(archive: Path, count: int) -> Iterator[bytes]:
    with np.load(archive) as tables:
        data, offsets = tables["jpeg"], tables["offsets"]
        for i in np.linspace(0, len(offsets) - 2, count).astype(int):
            yield data[offsets[i] : offsets[i + 1]].tobytes()


def _noise(count: int) -> Iterator[bytes]:
    from PIL import Image

    draw = np.random.default_rng(0)
    for _ in range(count):
        coarse = Image.fromarray(draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)).resize((64, 64))
        file = io.BytesIO()
        coarse.save(file, "JPEG")
        yield file.getvalue()


def build(spec: dict[str, Any]) -> Callable[[], Any]:
    """The side asked for by ``side``, ``threads`` and ``files``."""
    import torch

    from innerloop.features import extract
    from innerloop.features.opening import open_backbone

    files = [Path(file) for file in spec["files"]]
    backbone = open_backbone(NAME) if spec["weights"] == "published" else _drawn()
    if spec["side"] == "script":
        from innerloop.bench.own_pictures_script import script

        torch.set_num_threads(spec["threads"])
        return script({**backbone.params, **backbone.buffers}, files)
    folder = Path(spec["folder"])

    def call() -> Any:
        if spec["side"] == "first":
            shutil.rmtree(folder, ignore_errors=True)
        return extract(backbone, files, cache=folder, threads=spec["threads"]).values

    return call


def _drawn() -> Any:
    """The same network with weights as they are drawn: as fast, where nobody has installed the others."""
    import torch

    from innerloop.features.backbone import Backbone
    from innerloop.nets.factory import backbone
    from innerloop.nets.pretrained import PRETRAINED

    network = backbone(NAME, 3, 224, 1000, norm="running")
    params, buffers = network.init(torch.Generator().manual_seed(0))
    return Backbone(NAME, network, params, buffers, PRETRAINED[NAME].preprocessing, "drawn")


class OwnPicturesWorker(Worker):
    """Answers like the other benchmarks' worker, for these sides."""

    def setup(self, spec: dict[str, Any], gradient: str | None = None) -> dict[str, Any]:
        """Builds a side, runs it once, and writes its features to a file."""
        keep_freed_memory()
        self.call = build(spec)
        start = time.perf_counter()
        found = self.call()
        took = time.perf_counter() - start
        if gradient:
            np.save(gradient, found)
        return {"first_call_s": took}


def run(quick: bool = False, say: Say = print, sizes: dict[str, Any] | None = None) -> dict[str, Any]:
    """Features of picture files: ours from nothing, ours from the cache, and the script on one core and all.

    Args:
        quick: few pictures and rounds.
        say: receives lines for people.
        sizes: ``pictures``, for tests.
    """
    from innerloop.core.cores import available_cores
    from innerloop.nets.pretrained import is_installed

    cores = available_cores()
    count = (sizes or {}).get("pictures", QUICK if quick else PICTURES)
    weights = "published" if is_installed(NAME) else "drawn"
    with picture_files(count) as (files, what), tempfile.TemporaryDirectory() as folder:
        base = {"files": [str(file) for file in files], "weights": weights}
        ours = {**base, "threads": cores}
        sides = [
            Side("ours, first", {**ours, "side": "first", "folder": str(Path(folder, "first"))}),
            Side("ours, again", {**ours, "side": "again", "folder": str(Path(folder, "again"))}),
            *on_threads("script", {**base, "side": "script"}, sorted({1, cores})),
        ]
        with harness.started(sides, MODULE, say=say) as all_sides:
            off = _distance(all_sides.results)
            turns = (2, 0.1, 0.0) if quick else (3, 1.0, harness.PATIENCE)
            found = harness.measured(all_sides, *turns, warm=1)
    notes = [f"{what}, {weights} weights", f"features differ by {off:.1g}", *busy(found.bystanders)]
    rows = _rows(found.timings, len(files), notes)
    for row in rows:
        say(f"{row['case']}: {row['ratio']:.1f}×; {row['notes']}")
    return {"cases": rows, "machine": harness.machine()}


def _distance(features: dict[str, harness.Array]) -> float:
    """The largest relative distance of our features from the script's.

    Raises:
        RuntimeError: if it is more than rounding: a faster wrong answer is no result.
    """
    reference = features["script@1"]
    off = max(float(np.linalg.norm(f - reference) / np.linalg.norm(reference)) for f in features.values())
    if not off <= AGREE:
        raise RuntimeError(f"our features differ from the script's by {off:.2g} of their norm")
    return off


def _rows(timings: dict[str, Timing], count: int, notes: list[str]) -> list[dict[str, Any]]:
    script = better(timings, "script@")
    rows = []
    for which, words in (("first", "decode to vector"), ("again", "from the cache")):
        ours = timings[f"ours, {which}"]
        speed = f"{ours.ms / count:.1f} ms a picture, the script {script.ms / count:.1f}"
        case = f"features of {count} pictures at 224, {words}"
        peer = script if which == "first" else timings["ours, first"]
        name = "script" if which == "first" else "ours, first time"
        rows.append(comparison(case, name, ours, peer, AT_LEAST[which], [speed, *notes]))
    return rows


if __name__ == "__main__":
    serve(OwnPicturesWorker())
