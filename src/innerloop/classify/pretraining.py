"""Networks that a recipe trains on pictures: meta-trained on arrays of one's own, or those of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from innerloop.classify.backbones import Backbone
from innerloop.classify.heads import HeadSettings, recipe_with, settings_in
from innerloop.classify.predictor import Predictor, sizes_for
from innerloop.core.preprocessing import Preprocessing
from innerloop.core.resources import available_cores
from innerloop.core.types import Buffers, Params
from innerloop.data.arrays import from_arrays
from innerloop.data.augment import episode_transform, lee2019
from innerloop.data.pictures import Colour, Progress, silent
from innerloop.experiment.data import build_data
from innerloop.experiment.fitting import fit_parts
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.schema import Recipe
from innerloop.nets.network import Network
from innerloop.nets.norms import check_policy
from innerloop.tasks.episodes import Kind
from innerloop.tasks.few_shot import few_shot_sampler
from innerloop.training.execution.plan import Plan

KEYS = {
    "filters": "model.filters",
    "norm": "model.norm",
    "ways": "tasks.ways",
    "shots": "tasks.shots",
    "queries": "tasks.queries",
    "steps": "outer.steps",
    "batch": "outer.batch",
    "lr": "outer.lr",
    "head": "eval.head",
    "C": "eval.C",
    "normalise": "eval.normalise_features",
    "seed": "run.seed",
}
"""What each argument of training is called in a recipe; ``augment`` is a word there."""
_SMALLEST_POOLED = 16  # four times 2×2 pooling leaves nothing of less


def recipe_for(arguments: Mapping[str, Any], side: int) -> Recipe:
    """What a ``FewShotClassifier`` trains: a Conv4 as a prototypical network, on pictures of this side."""
    base = {
        "name": "few-shot-classifier",
        "data": {"name": "arrays", "augment": "lee2019" if arguments.get("augment") else "none"},
        "tasks": {"family": "few-shot"},
        "model": {"kind": "conv4", "pooling": "max" if side >= _SMALLEST_POOLED else "stride"},
        "inner": {"method": "protonet", "loss": "cross-entropy"},
        "run": {"execution": "threads" if arguments.get("batch", 1) > 1 else "loop", "compile": "off"},
    }
    return recipe_with(base, {name: value for name, value in arguments.items() if name in KEYS}, KEYS)


def train(X: Any, y: Any, arguments: Mapping[str, Any], progress: Progress = silent) -> Predictor:
    """A Conv4 that is meta-trained as a prototypical network on labelled arrays."""
    check_policy(arguments["norm"])
    source = from_arrays(X, y, splits={"train": [str(label) for label in np.unique(np.asarray(y))]})
    how = trained_preprocessing(source.images.shape[1:])
    ways = min(arguments["ways"], max(source.n_classes, 2))
    recipe = recipe_for({**arguments, "ways": ways}, how.shape[0])
    total = recipe.outer.steps
    seed, augment = recipe.run.seed, recipe.data.augment == "lee2019"
    sampler = few_shot_sampler(  # by hand: messages name the classifier's arguments
        source,
        "train",
        seed=seed,
        kinds=[Kind(recipe.tasks.ways, recipe.tasks.shots, recipe.tasks.queries)],
        transform=episode_transform(seed, lee2019(source.images.shape[1])) if augment else None,
    )
    parts = Parts(recipe, build_data(recipe, source, sampler), sizes_for(how, ways, source.n_classes))
    plan = Plan("threads" if recipe.outer.batch > 1 else "loop", available_cores())
    state = fit_parts(parts, plan=plan, log=lambda record: progress("training", record["step"], total))
    weights, words = (state.params, state.buffers), f"last (step {total})"
    head, own = settings_in(recipe), "this FewShotClassifier"
    return trained_predictor(recipe, head, parts.network, weights, how, own, words)


def trained_predictor(
    recipe: Recipe,
    head: HeadSettings,
    network: Network,
    weights: tuple[Params, Buffers],
    how: Preprocessing,
    source: str,
    words: str,
) -> Predictor:
    """The network that a recipe trained on pictures; ``words`` say which weights these are."""
    seen = f"{recipe.data.name}, training classes"
    settings = recipe.model.model_dump(exclude={"kind", "init"})
    licence = "that of its training data"
    backbone = Backbone(recipe.model.kind, network, *weights, how, words, seen, licence, settings)
    return Predictor(backbone, head, source, recipe)


def trained_preprocessing(
    shape: Sequence[int], mean: Sequence[float] | None = None, std: Sequence[float] | None = None
) -> Preprocessing:
    """How picture files are brought to what training saw: the largest square in the middle."""
    height, width, channels = shape
    mean, std = (None if values is None else tuple(values) for values in (mean, std))
    colour: Colour = "grey" if channels == 1 else "rgb"
    return Preprocessing((height, width), "fill", resample="lanczos", mean=mean, std=std, colour=colour)
