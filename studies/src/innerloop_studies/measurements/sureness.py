"""How right and how sure a pretrained backbone is on real pictures: the table of docs/backbones.md.

    python -m innerloop_studies.measurements.sureness FOLDER [--backbone NAME] [--classes 40] [--each 20]
    [--queries 15]
        [--ways 5] [--shots 5]

It prints a table, with ``--json`` its numbers.

FOLDER holds ``tiny_imagenet_60.npz``, ``omniglot_28.npz`` and ``quickdraw_28.npz``; what is not there is left
out. Features are computed once and kept. Of every set, classes and pictures are taken at even distances.
Accuracies are over 600 tasks of five classes, everything else over 200 tasks of ``--ways`` classes with
``--shots`` examples each, whose unknown pictures are of as many other classes. Intervals are of 95 %, over
tasks; those of calibration errors come from drawing tasks anew.
"""

import argparse
import io
import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

import innerloop as il
from innerloop.classify import Backbone, TimeLeft, calibration_error
from innerloop.cli.output import say
from innerloop.core.statistics import mean_interval
from innerloop.evaluation import Protocol, evaluate_features
from innerloop.tasks.episodes import Kind
from innerloop_studies.bench.harness import Array
from innerloop_studies.bench.own_pictures import REAL, labelled, photographs
from innerloop_studies.recorded import interval
from innerloop_studies.recorded import table as markdown

TASKS, SURE = 600, 200
WAYS, SHOTS, QUERIES = 5, 5, 15


class PictureSet(NamedTuple):
    """Some classes of a set, equally many pictures of each, class after class."""

    title: str
    pictures: list[Any]
    classes: int


def tiny_imagenet(file: Path, classes: int, each: int) -> PictureSet:
    """Photographs of Tiny-ImageNet, 64×64."""
    of, _, files = zip(*photographs(file, classes, each), strict=True)
    pictures = [np.asarray(Image.open(io.BytesIO(data)).convert("RGB")) for data in files]
    return PictureSet("Tiny-ImageNet (64×64 photographs)", pictures, len(set(of)))


def drawings(title: str, of_class: int, file: Path, classes: int, each: int) -> PictureSet:
    """Drawings of 28×28, dark on white as they are drawn; of Omniglot, those of Vinyals' test classes."""
    with np.load(file) as table:
        images = table["images"].reshape(-1, of_class, 28, 28)
        there = table["vinyals_test"] if "vinyals_test" in table else np.arange(len(images))
    chosen = there[np.linspace(0, len(there) - 1, min(classes, len(there))).astype(int)]
    pictures = 255 - images[chosen][:, :each]
    return PictureSet(title, list(pictures.reshape(-1, 28, 28)), len(pictures))


SETS: dict[str, Callable[[Path, int, int], PictureSet]] = {
    REAL: tiny_imagenet,
    "omniglot_28.npz": partial(drawings, "Omniglot (28×28 characters)", 20),
    "quickdraw_28.npz": partial(drawings, "Quick Draw (28×28 drawings)", 100),
}


def one_task(features: Array, of: Array, size: Kind, draw: np.random.Generator) -> dict[str, Any]:
    """Some classes from some examples each; queries of them, and pictures of as many other classes."""
    ways, shots, queries = size[:3]
    classes = draw.permutation(np.unique(of))[: 2 * ways]
    rows = np.stack([draw.permutation(np.flatnonzero(of == c))[: shots + queries] for c in classes])
    known, other = rows[:ways], rows[ways:, :queries].reshape(-1)
    asked = known[:, shots:]
    labels = np.repeat(np.arange(ways), asked.shape[1])
    model = il.FewShotHead("logistic", C=1.0)
    model.fit(features[known[:, :shots].reshape(-1)], np.repeat(np.arange(ways), shots))
    x = features[asked.reshape(-1)]
    after = model.predict_proba(x)
    before = torch.from_numpy(model.decision_function(x) * model.temperature_).softmax(-1).numpy()
    assert model.expected_ is not None
    promise = model.expected_.accuracy
    reached = float((after.argmax(1) == labels).mean())
    said = {"promised": promise.value, "reached": reached}
    said |= {"inside": float(promise.low <= reached <= promise.high), "below": float(reached < promise.low)}
    for name, asked in (("alarms", x), ("detected", features[other])):
        said[name] = float(model.unknown(asked).mean())
    return {**said, "before": before, "after": after, "labels": labels}


def error_of(tasks: list[dict[str, Any]], which: str, draw: Any, again: int = 200) -> tuple[float, float]:
    """Expected calibration error over all queries, and half the width of its interval."""

    def of(some: list[dict[str, Any]]) -> float:
        shares, labels = (np.concatenate([task[key] for task in some]) for key in (which, "labels"))
        return calibration_error(torch.from_numpy(shares), torch.from_numpy(labels))

    drawn = [of([tasks[i] for i in draw.integers(0, len(tasks), len(tasks))]) for _ in range(again)]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return of(tasks), float(high - low) / 2


def measure(backbone: Backbone, pictures: PictureSet, wanted: Kind) -> dict[str, dict[str, float]]:
    """A row of the table, with so many queries of a class where there are as many pictures."""
    values = il.extract(backbone, pictures.pictures, progress=TimeLeft(say)).values
    each = len(values) // pictures.classes
    of = np.repeat(np.arange(pictures.classes), each)
    source = labelled(of)
    size = wanted._replace(queries=min(wanted.queries, each - wanted.shots))
    protocol = Protocol(WAYS, 1, min(QUERIES, wanted.queries, each - SHOTS), TASKS, head="logistic")
    tensor = torch.from_numpy(values)
    row = {}
    for shots in (1, SHOTS):
        judged = evaluate_features(lambda rows: tensor[rows], source, protocol._replace(shots=shots)).interval
        row[f"{shots}-shot"] = {"mean": judged.mean, "ci95": judged.ci95}
    draw = np.random.default_rng(0)
    tasks = [one_task(values.astype(np.float64), of, size, draw) for _ in range(SURE)]
    measured = {which: error_of(tasks, which, draw) for which in ("before", "after")}
    for name in ("promised", "reached", "inside", "below", "alarms", "detected"):
        measured[name] = mean_interval([task[name] for task in tasks])[:2]
    return row | {name: {"mean": mean, "ci95": half} for name, (mean, half) in measured.items()}


HEADING = {
    "1-shot": "5-way 1-shot",
    "5-shot": "5-way 5-shot",
    "before": "calibration error, plain softmax",
    "after": "after our temperature",
    "promised": "accuracy promised",
    "reached": "reached",
    "inside": "promise's interval holds",
    "below": "less is reached",
    "alarms": "known called unknown",
    "detected": "unknown called unknown",
}


def table(rows: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """As Markdown, in per cent."""
    lines = [(title, *(interval(row[name], 100) for name in HEADING)) for title, row in rows.items()]
    return markdown(("pictures", *HEADING.values()), lines)


def main() -> None:
    """Prints the table as Markdown, or its numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--classes", type=int, default=40)
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--queries", type=int, default=QUERIES, help="of a class, where all else is measured")
    parser.add_argument("--ways", type=int, default=WAYS, help="classes there")
    parser.add_argument("--shots", type=int, default=SHOTS, help="examples of a class there")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    backbone = il.open_backbone(given.backbone)
    rows = {}
    size = Kind(given.ways, given.shots, given.queries)
    for name, load in SETS.items():
        if (given.folder / name).is_file():
            pictures = load(given.folder / name, given.classes, given.each)
            rows[pictures.title] = measure(backbone, pictures, size)
    settings = {key: value for key, value in vars(given).items() if key not in ("folder", "json")}
    told = json.dumps({"rows": rows, "settings": settings}) if given.json else table(rows)
    sys.stdout.write(f"{told}\n")


if __name__ == "__main__":
    main()
