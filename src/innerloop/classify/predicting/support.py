"""Folders of examples and pictures to label, as they are typed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from innerloop.classify.predicting.adapted import Adapted
from innerloop.classify.predicting.files import Saved
from innerloop.classify.predicting.predictor import Predictor
from innerloop.core.errors import Problems, UserError
from innerloop.data.folder import FolderOptions, check_folder, examples_in
from innerloop.data.folder_look import Bad, OnBad, look_at_heads, unreadable
from innerloop.data.layouts.layout import Progress, silent
from innerloop.data.opening import open_source
from innerloop.data.pictures import is_picture, is_taken_for_picture
from innerloop.data.source import labels
from innerloop.experiment.recipe.settings import make_recipe

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
    """Learns the classes of a folder with one folder of pictures per class."""
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


def list_pictures(paths: Sequence[Path], on_bad: OnBad = "refuse") -> tuple[list[Path], Bad]:
    """Files as given, and the pictures in folders, sorted; and what is left out, each with the reason."""
    problems = Problems()
    files: list[Path] = []
    for path in paths:
        inside = sorted(p for p in path.rglob("*") if _is_meant(p)) if path.is_dir() else [path]
        if not inside:
            problems.add(f"{path} has no pictures in it.")
        elif not path.exists():
            problems.add(f"there is no {'picture' if path.suffix else 'folder'} '{path}'.")
        else:
            files += inside
    if not paths:
        problems.add("give at least one picture to label.")
    heads, bad = look_at_heads(Path(), [str(file) for file in files], on_bad)
    good = [file for file in files if str(file) in heads]
    if bad and (on_bad == "refuse" or not good):
        with problems.collect():
            raise unreadable(bad)
    problems.refuse()
    return good, bad


def _is_meant(path: Path) -> bool:
    return path.is_file() and (is_picture(path.name) or is_taken_for_picture(path.name))


def learned_already(loaded: Saved, overrides: Sequence[str]) -> Adapted:
    """The classes that a saved model knows."""
    if loaded.adapted is None:
        raise UserError(
            f"{loaded.predictor.source} has not learned your classes yet: add --support DIR, a folder with "
            "one folder of labelled pictures per class."
        )
    late = [item for item in overrides if not item.startswith("data.on_bad=")]
    if late:
        raise UserError(
            f"{loaded.predictor.source} has learned its classes already, so {late[0]} would change "
            "nothing: leave it out, or add --support DIR to learn classes with it."
        )
    return loaded.adapted
