"""Folders of examples and pictures to label, as they are typed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from innerloop.core.errors import UserError
from innerloop.data import open_source
from innerloop.data.folder import scan
from innerloop.data.folder_names import by_class, class_names
from innerloop.data.layouts.layout import Progress, silent
from innerloop.data.pictures import is_picture
from innerloop.data.source import labels
from innerloop.experiment.adapted import Adapted
from innerloop.experiment.predictor import Predictor
from innerloop.experiment.predictor_files import Saved


def support_files(folder: Path) -> dict[str, list[Path]]:
    """The examples of every class of a folder, in the order in which they are learned."""
    members = by_class(folder, [item.path for item in scan(_folder(folder))])
    names, _ = class_names(list(members), folder)
    return {
        name: [folder / path for path in paths] for name, paths in zip(names, members.values(), strict=True)
    }


def adapt_to_folder(predictor: Predictor, folder: Path, progress: Progress = silent) -> Adapted:
    """Learns the classes of a folder with one folder of pictures per class.

    Args:
        predictor: the network.
        folder: of examples.
        progress: told how many features are computed, where they are those of a backbone.
    """
    if predictor.backbone is not None:
        examples = support_files(folder)
        files = [file for paths in examples.values() for file in paths]
        known = [name for name, paths in examples.items() for _ in paths]
        return predictor.adapt(files, known, list(examples), progress=progress)
    look = predictor.look
    source = open_source(folder, size=look.size, colour=look.colour, min_images=1, splits="all")
    names = list(source.class_names)
    return predictor.adapt(np.asarray(source.images), [names[c] for c in labels(source)], names)


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise UserError(
            f"{path} is no folder: --support takes one that holds a folder of examples per class."
        )
    return path


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


def learned_already(loaded: Saved, overrides: Sequence[str]) -> Adapted:
    """The classes that a saved model knows.

    Args:
        loaded: a file or a run.
        overrides: settings of the adaptation, which come too late here.

    Raises:
        UserError: it knows none, or there are such settings.
    """
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
