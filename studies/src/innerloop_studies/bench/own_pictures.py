"""Your own pictures: features from files to vectors, against the script that a careful user writes.

Then episodes on features that are there, against a loop of scikit-learn's estimators, and the whole command
from a folder of examples to labels.

Run as a module (``python -m innerloop_studies.bench.own_pictures``) it is the child process of one side.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from innerloop_studies.bench import harness
from innerloop_studies.bench.harness import Say
from innerloop_studies.bench.messages import Answer, Spec
from innerloop_studies.bench.own_pictures_command import command_case
from innerloop_studies.bench.own_pictures_episodes import episodes_case
from innerloop_studies.bench.rows import Report, Row, Side, Timing, better, busy, comparison, on_threads
from innerloop_studies.bench.worker import Worker, keep_freed_memory, serve

WHAT = "features of 500 pictures by a pretrained network, 2,000 episodes, predict as a whole"
VERSION = 1

MODULE = "innerloop_studies.bench.own_pictures"
NAME = "efficientnet-lite0"
PICTURES, QUICK = 500, 40
CLASSES = 25
AT_LEAST = {"first": 2.0, "again": 50.0}
AGREE = 1e-3
"""Sides must have the same features: float32, relative to their norm."""
REAL = "tiny_imagenet_60.npz"
"""Photographs of 64×64 as JPEG files, in the folder that INNERLOOP_TEST_DATA names."""


@contextmanager
def picture_files(count: int) -> Iterator[tuple[list[Path], str]]:
    """So many files in a folder per class, and what they are: photographs if they are here, else noise."""
    with tempfile.TemporaryDirectory() as folder:
        named = os.environ.get("INNERLOOP_TEST_DATA", "")
        real = Path(named, REAL)
        classes = min(CLASSES, count)
        per = -(-count // classes)
        have = bool(named) and real.is_file()
        made = photographs(real, classes, per) if have else _noise(classes, per)
        files = []
        for label, number, data in islice(made, count):
            files.append(Path(folder, f"class{label:02d}", f"{number:03d}.jpg"))
            files[-1].parent.mkdir(exist_ok=True)
            files[-1].write_bytes(data)
        yield files, "photographs of Tiny-ImageNet" if have else "pictures of noise"


def photographs(archive: Path, classes: int, per: int) -> Iterator[tuple[int, int, bytes]]:
    """Photographs as files of JPEG, with the number of their class and their own."""
    with np.load(archive) as tables:
        data, offsets, labels = tables["jpeg"], tables["offsets"], tables["labels"]
        chosen = np.unique(labels)[np.linspace(0, len(np.unique(labels)) - 1, classes).astype(int)]
        for place, label in enumerate(chosen):
            for number, i in enumerate(np.flatnonzero(labels == label)[:per]):
                yield place, number, data[offsets[i] : offsets[i + 1]].tobytes()


def _noise(classes: int, per: int) -> Iterator[tuple[int, int, bytes]]:
    from PIL import Image

    draw = np.random.default_rng(0)
    for label in range(classes):
        common = draw.integers(0, 128, (8, 8, 3), dtype=np.uint8)
        for number in range(per):
            values = common + draw.integers(0, 128, (8, 8, 3), dtype=np.uint8)
            file = io.BytesIO()
            Image.fromarray(values).resize((64, 64)).save(file, "JPEG")
            yield label, number, file.getvalue()


def build(spec: Spec) -> Callable[[], Any]:
    """The side asked for by ``side``, ``threads`` and ``files``."""
    import torch

    from innerloop.classify.backbones import open_backbone
    from innerloop.classify.features import extract

    files = [Path(file) for file in spec["files"]]
    backbone = open_backbone(NAME) if spec["weights"] == "published" else _drawn()
    if spec["side"] == "script":
        from innerloop_studies.bench.own_pictures_script import script

        torch.set_num_threads(spec["threads"])
        return script({**backbone.params, **backbone.buffers}, files)
    folder = Path(spec["folder"])

    def call() -> Any:
        """The features of all files; with nothing kept if it is the first time that is measured."""
        if spec["side"] == "first":
            shutil.rmtree(folder, ignore_errors=True)
        return extract(backbone, files, cache=folder, threads=spec["threads"]).values

    return call


def _drawn() -> Any:
    """The same network with weights as they are drawn: as fast, where nobody has installed the others."""
    import torch

    from innerloop.classify.backbones import Backbone
    from innerloop.nets.factory import backbone
    from innerloop.nets.pretrained import PRETRAINED

    network = backbone(NAME, 3, 224, 1000, norm="running")
    params, buffers = network.init(torch.Generator().manual_seed(0))
    return Backbone(NAME, network, params, buffers, PRETRAINED[NAME].preprocessing, "drawn")


class OwnPicturesWorker(Worker):
    """Answers like the other benchmarks' worker, for these sides."""

    def setup(self, spec: Spec, gradient: str | None = None) -> Answer:
        """Builds a side, runs it once, and writes its features to a file."""
        keep_freed_memory()
        self.call = build(spec)
        start = time.perf_counter()
        features = self.call()
        took = time.perf_counter() - start
        if gradient:
            np.save(gradient, features)
        return {"first_call_s": took}


def run(quick: bool = False, say: Say = print, sizes: dict[str, int] | None = None) -> Report:
    """Features from nothing, from the cache and by the script.

    Then episodes on them, and the whole command.
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
            measurement = harness.measured(all_sides, *turns, warm=1)
            features = all_sides.results["ours, first"]
        of_what = f"{what}, {weights} weights"
        notes = [of_what, f"features differ by {off:.1g}", *busy(measurement.bystanders)]
        rows = _rows(measurement.timings, len(files), notes)
        rows.append(
            episodes_case(features, [file.parent.name for file in files], quick, of_what, sizes or {})
        )
        if weights == "published":
            rows.append(command_case(files, quick, what))
    for row in rows:
        say(f"{row['case']}: {row['ratio']:.1f}×; {row['notes']}")
    return {"cases": rows, "machine": harness.machine()}


def _distance(features: dict[str, harness.Array]) -> float:
    """The largest relative distance of our features from the script's."""
    reference = features["script@1"]
    off = max(float(np.linalg.norm(f - reference) / np.linalg.norm(reference)) for f in features.values())
    if not off <= AGREE:
        raise RuntimeError(f"our features differ from the script's by {off:.2g} of their norm")
    return off


def _rows(timings: dict[str, Timing], count: int, notes: list[str]) -> list[Row]:
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
