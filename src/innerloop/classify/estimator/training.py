"""Training by a classifier's recipe on given pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from innerloop.classify.predicting.network import sizes_for
from innerloop.classify.predicting.predictor import Predictor
from innerloop.core.cores import available_cores
from innerloop.core.types import Buffers, Params
from innerloop.data.arrays import from_arrays
from innerloop.data.augment import episode_transform, lee2019
from innerloop.data.layouts.layout import Progress, silent
from innerloop.data.source import ImageSource
from innerloop.experiment.classifier_recipe import recipe_for
from innerloop.experiment.data import build_data
from innerloop.experiment.fitting import fit_parts
from innerloop.experiment.look import Look
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.schema import Recipe
from innerloop.nets.network import Network
from innerloop.tasks.episodes import Shape
from innerloop.tasks.few_shot import Kind, few_shot_sampler
from innerloop.tasks.sampler import Sampler
from innerloop.training.execution.plan import Plan


def pretrained(X: Any, y: Any, arguments: Mapping[str, Any], progress: Progress = silent) -> Predictor:
    """A Conv4 that was meta-trained as a prototypical network on labelled arrays."""
    source = from_arrays(X, y, splits={"train": [str(label) for label in np.unique(np.asarray(y))]})
    height, width, channels = source.images.shape[1:]
    ways = min(arguments["ways"], max(source.n_classes, 2))
    recipe, look = recipe_for({**arguments, "ways": ways}, height), Look((height, width, channels))
    trained = train(source, recipe, look, progress)
    return Predictor(recipe, *trained, look, "this FewShotClassifier", f"last (step {recipe.outer.steps})")


def train(
    source: ImageSource, recipe: Recipe, look: Look, progress: Progress = silent
) -> tuple[Network, Params, Buffers]:
    """The network after training by the recipe on the classes of ``source``: its weights and statistics."""
    data = build_data(recipe, source, _episodes(source, recipe))
    parts = Parts(recipe, data, sizes_for(look, recipe.tasks.ways, source.n_classes))
    plan = Plan("threads" if recipe.outer.batch > 1 else "loop", available_cores())
    total = recipe.outer.steps
    state = fit_parts(parts, plan=plan, log=lambda record: progress("training", record["step"], total))
    return parts.network, state.params, state.buffers


def _episodes(source: ImageSource, recipe: Recipe) -> Sampler:
    """Training tasks as :class:`FewShotClassifier` has always drawn them; messages name its arguments."""
    tasks, seed = recipe.tasks, recipe.run.seed
    augment = recipe.data.augment == "lee2019"
    return few_shot_sampler(
        source,
        "train",
        seed=seed,
        kinds=[Kind(Shape(tasks.ways, tasks.shots, tasks.queries))],
        transform=episode_transform(seed, lee2019(source.images.shape[1])) if augment else None,
    )
