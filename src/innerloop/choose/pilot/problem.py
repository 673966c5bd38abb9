"""The pictures, the space of networks for them, and the recipe of every candidate."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from innerloop.choose.architectures.draws import PictureDraws
from innerloop.choose.architectures.space import Space, random_candidate
from innerloop.choose.architectures.spaces import get_space
from innerloop.choose.pilot.asked import CLASSIFIER, TRAINING, Asked
from innerloop.core.errors import UserError
from innerloop.data.source import ImageSource
from innerloop.experiment.parts import build
from innerloop.experiment.pictures import build_source, training_classes
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.experiment.words import recipe_words
from innerloop.tasks.few_shot import split_classes

SCORED_SIDE = 32
"""Larger pictures are scored at this side in spaces whose networks take any, as published."""

SCORED_WAYS = 5
"""Classes of the tasks that scores look at."""

QUERIES = 5
"""Query pictures of a class in pilots, at most: more tasks tell more than more pictures of one task."""

MANY_PICTURES = 100
"""Of every training class: then candidates are trained as one classifier of all classes."""

_OF_MODEL = ("outputs", "last_layer", "cosine_scale")  # of the recipe's network, what every network has


class Problem(NamedTuple):
    """What is searched."""

    recipe: Recipe
    space: Space[Any]
    draws: PictureDraws
    seed: int

    @property
    def ways(self) -> int:
        """Classes of a validation task."""
        return self.recipe.eval.ways or self.recipe.tasks.ways

    @property
    def queries(self) -> int:
        """Query pictures of a class in a validation task of a pilot."""
        return min(QUERIES, self.recipe.eval.queries or self.recipe.tasks.queries)

    def recipe_of(self, candidate: Any) -> Recipe:
        """The recipe that trains a candidate in full."""
        return with_network(self.recipe, self.space, candidate)

    def short_recipe_of(self, candidate: Any, steps: int) -> dict[str, Any]:
        """The same within so many steps, as plain data: its schedule and its warm-up are shortened."""
        whole = self.recipe_of(candidate)
        outer = whole.outer
        warmup = min(outer.warmup, math.ceil(outer.warmup * steps / outer.steps))
        short = outer.model_copy(update={"steps": steps, "warmup": warmup})
        judged = whole.eval.model_copy(update={"queries": self.queries})
        return whole.model_copy(update={"outer": short, "eval": judged}).model_dump(exclude_none=True)


@recipe_words()
def pose(asked: Asked) -> Problem:
    """Opens the pictures and makes a space for them.

    What does not fit is refused before anything is written.
    """
    source = build_source(asked.recipe)
    recipe = _fitted(asked, source)
    _, height, width, channels = source.images.shape
    if height != width:
        raise UserError(f"networks take square pictures, these are {height}×{width}: set data.size={height}.")
    section = asked.settings.space
    ways = min(SCORED_WAYS, training_classes(source))
    space = get_space(section.name, channels, height, ways, **section.arguments)
    side = SCORED_SIDE if section.name == "cells" and height > SCORED_SIDE else None
    draws = PictureDraws(source, recipe.run.seed, ways=ways, side=side)
    build(with_network(recipe, space, random_candidate(space, recipe.run.seed, "first")))
    return Problem(recipe, space, draws, recipe.run.seed)


def _fitted(asked: Asked, source: ImageSource) -> Recipe:
    """How candidates are trained, as far as the data may decide.

    Classes with many pictures are learned as a whole. Training tasks have fewer classes where the data have
    fewer.
    """
    recipe, classes = asked.recipe, split_classes(source, "train")
    if TRAINING in asked.free and min(np.diff(source.starts)[classes], default=0) >= MANY_PICTURES:
        return make_recipe({**recipe.model_dump(exclude_none=True), **CLASSIFIER})
    if "tasks.ways" not in asked.free or len(classes) >= recipe.tasks.ways:
        return recipe
    tasks = recipe.tasks.model_copy(update={"ways": max(2, len(classes))})
    return recipe.model_copy(update={"tasks": tasks})


def with_network(recipe: Recipe, space: Space[Any], candidate: Any) -> Recipe:
    """The recipe with a candidate as its network."""
    kept = recipe.model.model_dump(include=set(_OF_MODEL), exclude_none=True)
    data = recipe.model_dump(exclude_none=True)
    return make_recipe({**data, "model": {**kept, **space.settings(candidate, recipe.model.norm)}})
