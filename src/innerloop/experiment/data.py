"""The tasks of a recipe, and what they ask of a network. Each stream is made when first asked for."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from innerloop.core.errors import UserError
from innerloop.core.types import Task
from innerloop.data.source import ImageSource
from innerloop.experiment.messages import recipe_words
from innerloop.experiment.pictures import (
    Scale,
    build_image_sampler,
    build_source,
    hard_groups,
    largest_ways,
    scale_of,
    training_classes,
)
from innerloop.experiment.recipe.protocols import IMAGE_FAMILIES, has_hard_tasks
from innerloop.experiment.recipe.schema import Recipe
from innerloop.tasks.families import get_family
from innerloop.tasks.sampler import Sampler, make_sampler


class Sizes(NamedTuple):
    """What tasks ask of a network. A run keeps it, so that its network can be rebuilt without its data."""

    inputs: tuple[int, ...]
    outputs: int
    ways: int
    rows: int
    labels: bool

    def as_dict(self) -> dict[str, Any]:
        """For the manifest."""
        return {**self._asdict(), "inputs": list(self.inputs)}


def sizes_from(record: Mapping[str, Any]) -> Sizes:
    """What :meth:`Sizes.as_dict` gave."""
    return Sizes(**{**record, "inputs": tuple(record["inputs"])})


def sizes_of_task(example: Task, rows: int) -> Sizes:
    """Sizes from one training task: outputs that tell all its labels apart, or one per column."""
    y = example.y_support
    labels = not y.is_floating_point()
    needed = int(torch.cat([y, example.y_query]).max()) + 1 if labels else y.shape[-1]
    return Sizes(tuple(example.x_support.shape[1:]), needed, needed, rows, labels)


DTYPES = {"float32": torch.float32, "float64": torch.float64}


class Data:
    """Training, validation and test tasks; what only another stream needs is not touched."""

    def __init__(
        self, recipe: Recipe, pictures: ImageSource | None, train: Sampler | None, scale: Scale | None
    ) -> None:
        self.recipe, self._pictures, self._train, self._scale = recipe, pictures, train, scale
        # else it holds what no recipe says
        self.by_recipe = pictures is None and train is None and scale is None

    @functools.cached_property
    def pictures(self) -> ImageSource:
        """Where the pictures come from."""
        return build_source(self.recipe) if self._pictures is None else self._pictures

    @functools.cached_property
    def scale(self) -> Scale:
        """Mean and deviation that standardise the pictures."""
        return scale_of(self.recipe, lambda: self.pictures) if self._scale is None else self._scale

    @functools.cached_property
    @recipe_words()
    def hard_groups(self) -> tuple[str, ...]:
        """Groups of classes whose training tasks are hard; measured if the recipe names none."""
        return hard_groups(self.recipe, self.pictures) if has_hard_tasks(self.recipe) else ()

    @functools.cached_property
    def train(self) -> Sampler:
        """The stream of training tasks, from ``run.seed``."""
        return self._sampler("train") if self._train is None else self._train

    @functools.cached_property
    def validation(self) -> Sampler:
        """Tasks that training is judged on, from ``eval.seed``."""
        return self._sampler("validation")

    @functools.cached_property
    def test(self) -> Sampler:
        """Tasks that the result is judged on, from ``eval.seed``: the same for every ``run.seed``."""
        return self._sampler("test")

    @functools.cached_property
    @recipe_words()
    def sizes(self) -> Sizes:
        """What the training tasks ask of a network."""
        recipe = self.recipe
        if recipe.tasks.family not in IMAGE_FAMILIES:
            return sizes_of_task(self.train.episode(0), recipe.tasks.n_tasks or 1)
        _, height, width, channels = self.pictures.images.shape
        classes = training_classes(self.pictures)
        ways = largest_ways(recipe)
        outputs = classes if recipe.tasks.family == "supervised" else ways
        return Sizes((channels, height, width), outputs, ways, classes, labels=True)

    @recipe_words()
    def _sampler(self, split: str) -> Sampler:
        recipe, training = self.recipe, split == "train"
        tasks, dtype = recipe.tasks, DTYPES[recipe.run.dtype]
        if tasks.family in IMAGE_FAMILIES:
            hard = self.hard_groups if training else ()
            return build_image_sampler(recipe, self.pictures, self.scale, split, dtype, hard)
        return make_sampler(
            get_family(tasks.family),
            seed=recipe.run.seed if training else recipe.eval.seed,
            split=split,
            shots=tasks.shots if training else recipe.eval.shots or tasks.shots,
            queries=tasks.queries if training else recipe.eval.queries or tasks.queries,
            n_tasks=tasks.n_tasks if training else None,
            resample=tasks.resample,
            noise=tasks.noise,
            dtype=dtype,
            device=recipe.run.device,
            settings=tasks.settings,
            name=tasks.family,
        )


def build_data(
    recipe: Recipe,
    pictures: ImageSource | None = None,
    train: Sampler | None = None,
    scale: Scale | None = None,
) -> Data:
    """The tasks that a recipe describes."""
    return Data(recipe, pictures, train, scale)


def check_inputs(data: Data, sizes: Sizes, whose: str) -> None:
    """Refuses test tasks that a network of these sizes cannot take."""
    task = data.test.episode(0)
    shape, wanted = tuple(task.x_support.shape[1:]), sizes.inputs
    if data.recipe.tasks.family not in IMAGE_FAMILIES:
        outputs = task.y_support.shape[-1] if task.y_support.is_floating_point() else None
        if shape != wanted or (outputs not in (None, sizes.ways)):
            raise UserError(
                f"the network of {whose} takes inputs of shape {wanted} and gives {sizes.ways} output(s), "
                f"these tasks have {shape} and {outputs or 'labels'}: leave tasks.* as they were."
            )
    elif shape != wanted:
        (channels, side), (have, here) = (wanted[0], wanted[-1]), (shape[0], shape[-1])
        colour = "" if channels == have else f"data.colour={'grey' if channels == 1 else 'rgb'}"
        size = "" if side == here else f"data.size={side} (pictures of your own)"
        fix = " and ".join(filter(None, [size, colour]))
        raise UserError(
            f"the network of {whose} takes pictures of {side}×{side} pixels in {channels} channel(s), these "
            f"have {here}×{here} in {have}: set {fix}, or judge it on others."
        )
