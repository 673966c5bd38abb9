"""A predictor from a run of ``innerloop train``, or from a file that ``FewShotClassifier.save`` wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from innerloop.classify.predicting.files import Saved, read_predictor
from innerloop.classify.predicting.predictor import Predictor
from innerloop.core.errors import UserError
from innerloop.experiment.data import build_data
from innerloop.experiment.kept import KEPT
from innerloop.experiment.loading import load_run
from innerloop.experiment.look import Look
from innerloop.experiment.model_place import find_model
from innerloop.experiment.pictures import IMAGE_FAMILIES
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.run_data import data_record
from innerloop.experiment.weights import for_test
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
    """As :func:`predictor_from`, with the classes that a saved file has learned.

    Args:
        source: a run's directory, or a file.
        items: ``key=value`` settings of adapting and labelling.
        trust: whether code that the recipe names may be imported.
    """
    place = find_model(source)
    if place.is_dir():
        return Saved(_of_run(place, items, trust))
    return read_predictor(place, items, trust=trust)


def _of_run(run: Path, items: Sequence[str], trust: bool) -> Predictor:
    loaded = load_run(run, items, trust=trust)
    recipe = loaded.parts.recipe
    if recipe.tasks.family not in IMAGE_FAMILIES:
        raise UserError(
            f"{run} was trained on {recipe.tasks.family} tasks, not on pictures: give a run on pictures."
        )
    weights, used = loaded.weights()
    params, buffers = for_test(*weights)
    network, look = loaded.parts.network, _look(recipe, run)
    return Predictor(_without_split(recipe, run), network, params, buffers, look, str(run), used)


def _look(recipe: Recipe, run: Path) -> Look:
    """Shape and scale from the manifest; from the data itself for runs that did not record them."""
    recorded = read_manifest(run).get("data") or data_record(build_data(recipe))
    height, width, channels = recorded["shape"]
    return Look((height, width, channels), recorded["mean"], recorded["std"])


def _without_split(recipe: Recipe, run: Path) -> Recipe:
    """The recipe without the place of the split that the run kept: it means nothing in another file."""
    if recipe.data.split_file != str(run / KEPT):
        return recipe
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"split_file": None})})
