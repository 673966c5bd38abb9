"""Labelling picture files: what ``innerloop predict`` does with a predictor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from innerloop.core.errors import UserError
from innerloop.data import open_source
from innerloop.data.pictures import is_picture
from innerloop.data.source import labels
from innerloop.experiment.adapted import Adapted
from innerloop.experiment.predictor import Predictor
from innerloop.experiment.predictor_files import Saved
from innerloop.experiment.predictor_loading import load_model
from innerloop.experiment.words import recipe_words


@recipe_words()
def predict_pictures(
    model: str | Path,
    support: Path | None,
    queries: Sequence[Path],
    overrides: Sequence[str] = (),
    unsure_below: float | None = None,
    *,
    trust: bool = False,
) -> dict[str, Any]:
    """Adapts a trained network to the classes of a folder and labels pictures.

    Args:
        model: a run on pictures, or a file that ``FewShotClassifier.save`` wrote.
        support: a folder with one folder of labelled pictures per class; ``None`` for the classes that a
            saved classifier has learned already.
        queries: picture files, or folders of them.
        overrides: ``key=value`` settings for the adaptation, such as ``inner.test_steps=10``.
        unsure_below: predictions less probable than this are marked unsure; by default what a saved
            classifier says, else 0.5.
        trust: whether code that the model's recipe names may be imported.

    Returns:
        ``classes``, ``method``, and ``predictions``: file, label, probability, unsure, and all probabilities.
    """
    loaded = load_model(model, overrides, trust=trust)
    files = list_pictures(queries)
    if support is None:
        adapted = _adapted_already(loaded, overrides)
    else:
        adapted = adapt_to_folder(loaded.predictor, support)
    predictor, names = adapted.predictor, [_plain(name) for name in adapted.names]
    made = adapted.predict(list(files), loaded.unsure_below if unsure_below is None else unsure_below)
    kind = "run" if Path(predictor.source).is_dir() else "model"
    return {
        kind: predictor.source,
        "method": adapted.method,
        "weights": predictor.weights,
        "norm": predictor.network.norm,
        "classes": names,
        "support": {str(name): n for name, n in zip(names, adapted.counts or [], strict=False)},
        "predictions": [
            {
                "file": str(file),
                "label": _plain(label),
                "probability": sure,
                "unsure": unsure,
                "unknown": unknown,
                "probabilities": {str(name): float(value) for name, value in zip(names, row, strict=True)},
            }
            for file, label, sure, unsure, row, unknown in zip(files, *made, strict=True)
        ],
    }


def adapt_to_folder(predictor: Predictor, folder: Path) -> Adapted:
    """Learns the classes of a folder with one folder of pictures per class."""
    look = predictor.look
    source = open_source(folder, size=look.size, colour=look.colour, min_images=1, splits="all")
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
