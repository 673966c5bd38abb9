"""Labelling picture files: what ``innerloop predict`` does with a predictor."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from csv import writer as table_writer
from pathlib import Path
from typing import Any

import numpy as np

from innerloop.core.errors import UserError
from innerloop.data import open_source
from innerloop.data.folder import FolderOptions, check_folder, examples_in
from innerloop.data.layouts.layout import Progress, silent
from innerloop.data.pictures import is_picture
from innerloop.data.source import labels
from innerloop.evaluation.sureness import CurvePoint, learning_curve
from innerloop.evaluation.sureness.heldout import Way as HeadWay
from innerloop.experiment.adapted import Adapted, Prediction
from innerloop.experiment.classifier_recipe import backbone_recipe
from innerloop.experiment.model_place import model_file
from innerloop.experiment.predictor import Predictor, of_backbone
from innerloop.experiment.predictor_files import Saved, write_predictor
from innerloop.experiment.predictor_loading import load_model
from innerloop.experiment.words import recipe_words
from innerloop.features import TimeLeft, open_backbone
from innerloop.recipes.settings import make_recipe

BACKBONE = "efficientnet-lite0"
"""Where nobody names a network."""

Say = Callable[[str], None]


@recipe_words()
def predict_pictures(
    model: str | Path | None,
    support: Path | None,
    queries: Sequence[Path],
    overrides: Sequence[str] = (),
    unsure_below: float | None = None,
    *,
    trust: bool = False,
    backbone: str | None = None,
    save: Path | None = None,
    csv: Path | None = None,
    say: Say | None = None,
) -> dict[str, Any]:
    """Adapts a network to the classes of a folder and labels pictures.

    Args:
        model: a run on pictures, or a file that ``FewShotClassifier.save`` wrote; None for a backbone.
        support: a folder with one folder of labelled pictures per class; ``None`` for the classes that a
            saved classifier has learned already.
        queries: picture files, or folders of them.
        overrides: ``key=value`` settings for the adaptation, such as ``inner.test_steps=10``.
        unsure_below: predictions less probable than this are marked unsure; by default what a saved
            classifier says, else 0.5.
        trust: whether code that the model's recipe names may be imported.
        backbone: the name of a pretrained network; ``efficientnet-lite0`` if there is no model either.
        save: a file for what was learned.
        csv: a file for a table of the labels.
        say: told how far it is, where it takes long.

    Returns:
        ``classes``, ``method``, ``expected``, ``curve``, and ``predictions``: file, label, probability,
        unsure, unknown, and all probabilities.
    """
    began = time.perf_counter()
    refuse_to_overwrite(save if save is None else model_file(save), csv)
    loaded = (
        _opened(backbone or BACKBONE, overrides)
        if model is None
        else load_model(model, overrides, trust=trust)
    )
    files = list_pictures(queries)
    progress = silent if say is None else TimeLeft(say)
    if support is None:
        adapted = _adapted_already(loaded, overrides)
    else:
        adapted = adapt_to_folder(loaded.predictor, support, progress, support_options(overrides))
    limit = loaded.unsure_below if unsure_below is None else unsure_below
    made = adapted.predict(list(files), limit, progress)
    told = {**_network(adapted, model), **_learned(adapted), "predictions": _rows(adapted, files, made)}
    if save is not None:
        arguments = {"unsure_below": limit, **loaded.arguments}
        told["saved"] = str(write_predictor(save, adapted.predictor, adapted, arguments))
    if csv is not None:
        told["csv"] = str(_write_csv(csv, told["predictions"]))
    return {**told, "seconds": time.perf_counter() - began}


def _network(adapted: Adapted, model: str | Path | None) -> dict[str, Any]:
    """Which network it was."""
    predictor = adapted.predictor
    named: dict[str, Any] = {}
    if model is not None:
        named["run" if Path(predictor.source).is_dir() else "model"] = predictor.source
    if predictor.backbone is not None:
        named["backbone"] = predictor.backbone.about()
    return {**named, "weights": predictor.weights, "norm": predictor.network.norm}


def _learned(adapted: Adapted) -> dict[str, Any]:
    """What it learned, and how sure it may be."""
    names = [_plain(name) for name in adapted.names]
    return {
        "method": adapted.method,
        "classes": names,
        "support": {str(name): n for name, n in zip(names, adapted.counts or [], strict=False)},
        "expected": _expected(adapted),
        "curve": [point._asdict() for point in _curve(adapted)],
    }


def _rows(adapted: Adapted, files: Sequence[Path], made: Prediction) -> list[dict[str, Any]]:
    names = [str(_plain(name)) for name in adapted.names]
    return [
        {
            "file": str(file),
            "label": _plain(label),
            "probability": sure,
            "unsure": unsure,
            "unknown": unknown,
            "probabilities": {name: float(value) for name, value in zip(names, row, strict=True)},
        }
        for file, label, sure, unsure, row, unknown in zip(files, *made, strict=True)
    ]


def _opened(backbone: str, overrides: Sequence[str]) -> Saved:
    recipe = make_recipe(backbone_recipe(backbone, {"head": "logistic"}).model_dump(), overrides)
    return Saved(of_backbone(open_backbone(backbone), recipe))


def _expected(adapted: Adapted) -> dict[str, Any] | None:
    found = None if adapted.sureness is None else adapted.sureness.expected
    if found is None:
        return None
    whole = {
        name: {"accuracy": share.value, "low": share.low, "high": share.high, "examples": share.n}
        for name, share in {None: found.accuracy, **found.by_class}.items()
    }
    return {
        **whole.pop(None),
        "by_class": {str(name): share for name, share in whole.items()},
        "confused": [
            {"true": str(pair.true), "said": str(pair.said), "share": pair.share} for pair in found.confused
        ],
    }


def _curve(adapted: Adapted) -> list[CurvePoint]:
    if adapted.examples is None or adapted.sureness is None:
        return []
    wanted, ways = adapted.predictor.recipe.eval, len(adapted.names)
    way = HeadWay(str(adapted.predictor.way(ways).head), wanted.C, wanted.normalise_features)
    return learning_curve(*adapted.examples, ways, way)


def refuse_to_overwrite(*paths: Path | None) -> None:
    """Nothing is overwritten; told before anything is computed."""
    there = [path for path in paths if path is not None and path.exists()]
    if there:
        raise UserError(f"{there[0]} is there already: give another name, or remove it.")


def _write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    columns = ("file", "label", "probability", "unsure", "unknown")
    with path.open("x", newline="", encoding="utf-8") as file:
        writer = table_writer(file)
        writer.writerow(columns)
        writer.writerows([row[name] for name in columns] for row in rows)
    return path


EXAMPLES = FolderOptions(min_images=1)
"""How a folder of examples is read: one is enough to learn from."""


def support_options(overrides: Sequence[str]) -> FolderOptions:
    """How a folder of examples is read, by settings that were typed; those of a training do not count.

    >>> support_options(["data.on_bad=skip", "eval.head=ridge"]).on_bad
    'skip'
    """
    data = make_recipe(
        {}, [item for item in overrides if item.startswith(("data.on_bad=", "data.leave_out="))]
    )
    return EXAMPLES._replace(on_bad=data.data.on_bad, leave_out=data.data.leave_out)


def adapt_to_folder(
    predictor: Predictor, folder: Path, progress: Progress = silent, options: FolderOptions = EXAMPLES
) -> Adapted:
    """Learns the classes of a folder with one folder of pictures per class.

    Args:
        predictor: the network.
        folder: of examples.
        progress: told how many features are computed, where they are those of a backbone.
        options: which files and classes may be left out.

    Raises:
        UserError: with a line for everything that is wrong with the folder.
    """
    if predictor.backbone is not None:
        examples = examples_in(folder, options)
        files = [file for paths in examples.values() for file in paths]
        known = [name for name, paths in examples.items() for _ in paths]
        return predictor.adapt(files, known, list(examples), progress=progress)
    look = predictor.look
    source = open_source(
        check_folder(folder),
        size=look.size,
        colour=look.colour,
        splits="all",
        on_bad=options.on_bad,
        min_images=options.min_images,
        leave_out=options.leave_out,
    )
    names = list(source.class_names)
    return predictor.adapt(np.asarray(source.images), [names[c] for c in labels(source)], names)


def _adapted_already(loaded: Saved, overrides: Sequence[str]) -> Adapted:
    if loaded.adapted is None:
        raise UserError(
            f"{loaded.predictor.source} has not learned your classes yet: add --support DIR, a folder with "
            "one folder of labelled pictures per class."
        )
    if overrides:
        raise UserError(
            f"{loaded.predictor.source} has learned its classes already, so {overrides[0]} would change "
            "nothing: leave it out, or add --support DIR to learn classes with it."
        )
    return loaded.adapted


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def list_pictures(paths: Sequence[Path]) -> list[Path]:
    """Files as given, and the pictures in folders, sorted."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file() and is_picture(p.name))
            if not inside:
                raise UserError(f"{path} has no pictures in it.")
            files += inside
        elif path.is_file():
            files.append(path)
        else:
            raise UserError(f"there is no picture '{path}'.")
    if not files:
        raise UserError("give at least one picture to label.")
    return files
