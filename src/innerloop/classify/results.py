"""What ``innerloop predict`` and a card tell: the network, what it learned, how sure it is, labels."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from innerloop._version import __version__
from innerloop.classify.cross_validation import CurvePoint, groups_of
from innerloop.classify.predictor import Prediction, Predictor
from innerloop.classify.sureness import (
    PAIRS,
    ConfusionPair,
    ExpectedAccuracy,
    Share,
    enumerate_names,
    share_of,
)
from innerloop.core.errors import UserError
from innerloop.core.files import plain
from innerloop.nets.hugging_face import PREFIX, is_hugging_face
from innerloop.nets.pretrained import UNKNOWN
from innerloop.runs.manifest import version_of


class NetworkSummary(NamedTuple):
    """Which network it was.

    Attributes:
        run: that trained it, if one was named.
        model: the file that it was read from, if one was named.
        backbone: what is known of a pretrained one.
        weights: which, in words.
        norm: its norm policy.
    """

    run: str | None
    model: str | None
    backbone: dict[str, Any] | None
    weights: str
    norm: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {name: value for name, value in self._asdict().items() if value is not None}


class Copies(NamedTuple):
    """Examples of a class that look like copies of one picture: files, or numbers where these are unknown."""

    label: Any
    examples: list[str]


class ClassesSummary(NamedTuple):
    """What it learned, and how sure it may be.

    Attributes:
        method: how it learned.
        classes: their names.
        support: how many examples each had.
        expected: how often it will be right; None where that is not known.
        curve: what fewer examples would have brought.
        copies: examples that look like copies of one picture, by class and file.
    """

    method: str
    classes: list[Any]
    support: dict[str, int]
    expected: ExpectedAccuracy | None
    curve: list[CurvePoint]
    copies: list[Copies]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        expected = None if self.expected is None else self.expected.as_dict()
        rows = {name: [row._asdict() for row in getattr(self, name)] for name in ("curve", "copies")}
        return {**self._asdict(), "expected": expected, **rows}


class LabelledPicture(NamedTuple):
    """A picture and its label.

    Attributes:
        file: the picture.
        label: the most probable class.
        probability: of that.
        unsure: whether it is less probable than asked for.
        unknown: whether it is farther from every class than examples are from theirs.
        probabilities: of all classes.
    """

    file: Path
    label: Any
    probability: float
    unsure: bool
    unknown: bool
    probabilities: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {**self._asdict(), "file": str(self.file)}


class PredictResult(NamedTuple):
    """Labels of pictures, and what gave them.

    Attributes:
        network: which it was.
        learned: the classes.
        predictions: a row for every picture.
        skipped: pictures that were left out, and why.
        seconds: of all this.
        saved: the file of what was learned, where one was wanted.
        card: beside it.
        csv: the table of the labels, where one was wanted.
        page: with the pictures, where one was wanted.
        truth: how many labels are right, where the pictures' folders name the classes and that was asked.
    """

    network: NetworkSummary
    learned: ClassesSummary
    predictions: list[LabelledPicture]
    skipped: list[tuple[str, str]]
    seconds: float
    saved: Path | None = None
    card: Path | None = None
    csv: Path | None = None
    page: Path | None = None
    truth: Truth | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as ``innerloop predict --json`` prints them."""
        skipped = [{"file": name, "reason": reason} for name, reason in self.skipped]
        written = {name: getattr(self, name) for name in ("saved", "card", "csv")}
        return {
            **self.network.as_dict(),
            **self.learned.as_dict(),
            "predictions": [row.as_dict() for row in self.predictions],
            **({"skipped": skipped} if skipped else {}),
            **{name: str(file) for name, file in written.items() if file is not None},
            **({} if self.truth is None else {"truth": self.truth.as_dict()}),
            "seconds": self.seconds,
            **({} if self.page is None else {"page": str(self.page)}),
        }


def summarise_network(predictor: Predictor, model: str | Path | None) -> NetworkSummary:
    """Which network it was."""
    source, is_run = None if model is None else predictor.source, Path(predictor.source).is_dir()
    backbone = predictor.backbone
    run, file = (source, None) if is_run else (None, source)
    about = backbone.about() if predictor.recipe is None else None
    return NetworkSummary(run, file, about, backbone.weights, backbone.network.norm)


def summarise_classes(predictor: Predictor, files: Sequence[Any] = ()) -> ClassesSummary:
    """What it learned, and how sure it may be."""
    classes = predictor.learned
    names, sure = [plain_label(name) for name in classes.names], classes.sureness
    return ClassesSummary(
        method=predictor.learned_by.words,
        classes=names,
        support={str(name): n for name, n in zip(names, classes.counts, strict=True)},
        expected=None if sure is None else sure.expected,
        curve=[] if sure is None else predictor.learning_curve(),
        copies=find_copies(predictor, files),
    )


def label_rows(names: Sequence[Any], files: Sequence[Path], made: Prediction) -> list[LabelledPicture]:
    """A row for every picture."""
    names = [str(plain_label(name)) for name in names]
    return [
        LabelledPicture(
            file=file,
            label=plain_label(label),
            probability=sure,
            unsure=unsure,
            unknown=unknown,
            probabilities={name: float(value) for name, value in zip(names, row, strict=True)},
        )
        for file, label, sure, unsure, row, unknown in zip(files, *made, strict=True)
    ]


def find_copies(predictor: Predictor, files: Sequence[Any] = ()) -> list[Copies]:
    """Examples that look like copies of one picture."""
    classes, copies = predictor.learned, predictor.copies
    if classes.examples is None or copies is None or classes.sureness is None:
        return []
    of = classes.examples.y.tolist()
    named = [str(file) for file in files] or [f"example {i + 1}" for i in range(len(of))]
    return [
        Copies(plain_label(classes.names[of[rows[0]]]), [named[i] for i in rows])
        for rows in groups_of(copies)
    ]


def plain_label(label: Any) -> Any:
    """A label as Python has it."""
    return label.item() if isinstance(label, np.generic) else label


class Truth(NamedTuple):
    """How many labels are right."""

    accuracy: Share
    unknown: int
    by_class: dict[str, Share]
    confused: list[ConfusionPair]
    other: dict[str, tuple[int, int]]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            **self.accuracy.as_dict("pictures"),
            "unknown": self.unknown,
            "by_class": {name: share.as_dict("pictures") for name, share in self.by_class.items()},
            "confused": [pair._asdict() for pair in self.confused],
            "other": {name: {"pictures": n, "unknown": m} for name, (n, m) in self.other.items()},
        }


def check_truth(files: Sequence[Path], names: Sequence[Any]) -> None:
    """Refuses pictures none of whose folders names a class."""
    folders = dict.fromkeys(file.absolute().parent.name for file in files)
    if not {str(name) for name in names} & set(folders):
        shown = ", ".join(f"'{name}'" for name in list(folders)[:3])
        raise UserError(
            f"--truth takes the name of a picture's folder for its class, and no folder here ({shown}) has "
            f"the name of one ({enumerate_names(names)}): sort the pictures into such folders, or leave "
            "--truth out."
        )


def truth_of(
    files: Sequence[Path], labels: Sequence[Any], unknown: Sequence[bool], names: Sequence[Any]
) -> Truth:
    """Compares labels with the names of the pictures' folders."""
    classes = [str(name) for name in names]
    folders = [file.absolute().parent.name for file in files]
    known = [(true, str(said)) for true, said in zip(folders, labels, strict=True) if true in classes]
    count = Counter(true for true, _ in known)
    wrong = Counter(pair for pair in known if pair[0] != pair[1])
    shares = [ConfusionPair(*pair, n / count[pair[0]]) for pair, n in wrong.items()]
    others = [(name, far) for name, far in zip(folders, unknown, strict=True) if name not in classes]
    return Truth(
        share_of([float(true == said) for true, said in known]),
        sum(unknown) - sum(far for _, far in others),
        {c: share_of([float(c == said) for true, said in known if true == c]) for c in classes if count[c]},
        sorted(shares, key=lambda pair: -pair.share)[:PAIRS],
        {
            name: (sum(name == one for one, _ in others), sum(far for one, far in others if one == name))
            for name in dict.fromkeys(name for name, _ in others)
        },
    )


About = dict[str, Any]


def about_model(predictor: Predictor, unsure_below: float, learned: ClassesSummary | None = None) -> About:
    """What was learned from what, by which network, and how sure it may be."""
    classes, summary = predictor.learned, (learned or summarise_classes(predictor)).as_dict()
    sure = classes.sureness
    novelty = None if sure is None or sure.novelty is None else sure.novelty._asdict()
    return plain(
        {
            "classes": [plain_label(name) for name in classes.names],
            "examples": summary["support"],
            "method": summary["method"],
            "normalise": classes.head.normalise,
            "expected": summary["expected"],
            "curve": summary["curve"],
            "copies": [len(row["examples"]) for row in summary["copies"]],
            "calibrated": sure is not None and sure.expected is not None,
            "temperature": predictor.temperature,
            "unsure_below": unsure_below,
            "novelty": novelty,
            "network": _network(predictor),
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": _versions(),
        }
    )


def _network(predictor: Predictor) -> dict[str, Any]:
    """The backbone with its licence, or what a recipe trained."""
    recipe, how = predictor.recipe, predictor.backbone.preprocessing
    common = {"pictures": str(how), "norm": predictor.network.norm}
    if recipe is None:
        about = predictor.backbone.about()
        return {**about, "name": _alone(about["name"]), "weights": _alone(about["weights"]), **common}
    return {
        "name": _alone(recipe.model.kind),
        "recipe": recipe.name,
        "weights": predictor.backbone.weights or UNKNOWN,
        "seen": _alone(recipe.data.name or recipe.tasks.family),
        "licence": UNKNOWN,
        "preprocessing": how.as_dict(),
        **common,
    }


def _alone(name: str) -> str:
    """A name without where on this machine it is: who gets the file need not know."""
    kind = PREFIX if is_hugging_face(name) else ""
    place = name.removeprefix(kind)
    return kind + Path(place).name if place.startswith(("/", ".", "~")) or Path(place).is_absolute() else name


def _versions() -> dict[str, str]:
    packages = ("torch", "numpy", "pillow", "onnx", "onnxruntime")
    kept = {name: version for name in packages if (version := version_of(name)) is not None}
    return {"innerloop": __version__, "python": platform.python_version(), **kept}
