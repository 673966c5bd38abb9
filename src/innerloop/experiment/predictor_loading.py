"""A predictor from a run of ``innerloop train``, or from a file that ``FewShotClassifier.save`` wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from innerloop.core.errors import UserError
from innerloop.experiment.build import for_test
from innerloop.experiment.evaluation import load_parts
from innerloop.experiment.kept import KEPT
from innerloop.experiment.look import Look
from innerloop.experiment.model_place import find_model
from innerloop.experiment.pictures import IMAGE_FAMILIES, data_record
from innerloop.experiment.predictor import Predictor
from innerloop.experiment.predictor_files import Saved, read_predictor
from innerloop.experiment.run import best_or_last
from innerloop.recipes.schema import Recipe
from innerloop.runs.manifest import read_manifest


def predictor_from(source: str | Path, items: Sequence[str] = (), *, trust: bool = False) -> Predictor:
    """A trained network that can learn new classes of pictures.

    Args:
        source: a run (its path, the beginning of its name, or ``last``), or a saved file.
        items: ``key=value`` settings for the adaptation, such as ``inner.test_steps=10``.
        trust: whether code that the run or the file names may be imported.

    Raises:
        UserError: there is no such thing, it was not trained on pictures, or it is damaged.
        UntrustedCodeError: it names code from outside that is neither in ``items`` nor trusted.
    """
    return load_model(source, items, trust=trust).predictor


def load_model(source: str | Path, items: Sequence[str] = (), *, trust: bool = False) -> Saved:
    """As :func:`predictor_from`, with the classes that a saved file has learned."""
    place = find_model(source)
    if place.is_dir():
        return Saved(_of_run(place, items, trust))
    return read_predictor(place, items, trust=trust)


def _of_run(run: Path, items: Sequence[str], trust: bool) -> Predictor:
    threads = torch.get_num_threads()
    try:
        recipe, parts, state, _ = load_parts(run, list(items), trust=trust)
    finally:
        torch.set_num_threads(threads)  # loading sets them for training; the process is not ours alone
    if recipe.tasks.family not in IMAGE_FAMILIES:
        raise UserError(
            f"{run} was trained on {recipe.tasks.family} tasks, not on pictures: give a run on pictures."
        )
    weights, used = best_or_last(recipe, run, state)
    params, buffers = for_test(*weights)
    look = _look(recipe, run)
    return Predictor(_without_split(recipe, run), parts.network, params, buffers, look, str(run), used)


def _look(recipe: Recipe, run: Path) -> Look:
    """Shape and scale from the manifest; from the data itself for runs that did not record them."""
    recorded: dict[str, Any] = read_manifest(run).get("data") or data_record(recipe)
    height, width, channels = recorded["shape"]
    return Look((height, width, channels), recorded["mean"], recorded["std"])


def _without_split(recipe: Recipe, run: Path) -> Recipe:
    """The recipe without the place of the split that the run kept: it means nothing in another file."""
    if recipe.data.split_file != str(run / KEPT):
        return recipe
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"split_file": None})})
