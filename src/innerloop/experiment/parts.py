"""A recipe with its parts: what is trained on what. Parts are built when they are first asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from innerloop.core.errors import Problems, UserError
from innerloop.core.types import Buffers, Loss, Params
from innerloop.experiment.data import Data, Sizes, build_data, check_inputs
from innerloop.experiment.messages import recipe_words
from innerloop.experiment.model import Model, build_model, check_kind
from innerloop.experiment.pictures import build_kinds
from innerloop.experiment.recipe.picture_fit import with_settings
from innerloop.experiment.recipe.protocols import IMAGE_FAMILIES, refuse_mixed_ways
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.weights import first_weights, for_test, load_teacher
from innerloop.learners.base import Learner
from innerloop.learners.objectives.base import Objective
from innerloop.learners.table import uses_head
from innerloop.nets.network import Network
from innerloop.training.optimisers import MakeOptimiser, Schedule, make_optimiser, make_schedule
from innerloop.training.state import TrainState, initial_state


class Parts:
    """Everything that a recipe means.

    The model asks the data for sizes only, and where these are given, as for a run that kept them, for
    nothing: then no data is opened before tasks are drawn.

    Args:
        recipe: what to train, or how it was trained.
        data: its tasks, where they are at hand; else as the recipe says.
        sizes: what its network was sized to; else what the data ask for.
        model: its model, where the recipe does not say all of it.
    """

    def __init__(
        self, recipe: Recipe, data: Data | None = None, sizes: Sizes | None = None, model: Model | None = None
    ) -> None:
        self.recipe = recipe = placed(recipe)
        self.data = build_data(recipe) if data is None else data
        self._sizes, self._model = sizes, model

    @functools.cached_property
    def sizes(self) -> Sizes:
        """What the network is sized to."""
        return self.data.sizes if self._sizes is None else self._sizes

    @functools.cached_property
    def model(self) -> Model:
        """Network, learner and objective."""
        if self._model is not None:
            return self._model
        return build_model(self.recipe, self.sizes, load_teacher(self.recipe, self.sizes, self.data))

    @functools.cached_property
    def first(self) -> TrainState:
        """The state before the first step."""
        return initial_state(*first_weights(self.recipe, self.model))

    @functools.cached_property
    @recipe_words()
    def optimiser(self) -> MakeOptimiser:
        """How meta-gradients become steps."""
        outer = self.recipe.outer
        return make_optimiser(outer.optimiser, outer.lr, **outer.options)

    @functools.cached_property
    def schedule(self) -> Schedule:
        """How the meta learning rate moves."""
        outer = self.recipe.outer
        return make_schedule(
            outer.schedule, outer.steps, outer.milestones, outer.factor, outer.warmup, outer.factors
        )

    @property
    def by_recipe(self) -> bool:
        """Whether the recipe and the sizes say all there is: another process can build the same parts."""
        return self._model is None and self.data.by_recipe

    @property
    def network(self) -> Network:
        """The model's network."""
        return self.model.network

    @property
    def loss(self) -> Loss:
        """The outer loss; it decides the score."""
        return self.model.loss

    @property
    def objective(self) -> Objective:
        """What one task contributes to training."""
        return self.model.objective

    @property
    def learner_after(self) -> Callable[[int], Learner]:
        """Number of inner steps → the learner that takes that many."""
        return self.model.learner_after

    @property
    def params(self) -> Params:
        """The first parameters."""
        return self.first.params

    @property
    def buffers(self) -> Buffers:
        """The first statistics."""
        return self.first.buffers

    def at_rate(self, rate: float) -> Parts:
        """The same with another inner rate, on the same data; the recipe alone must say what the model is."""
        if self._model is not None:
            raise ValueError("a model that was handed in has its own rate.")
        return Parts(with_settings(self.recipe, {"inner": {"lr": float(rate)}}), self.data, self.sizes)


@recipe_words()
def build(recipe: Recipe) -> Parts:
    """All parts of a recipe, built now, so that every mistake is found before anything is written."""
    problems, tasks = Problems(), []
    recipe = placed(recipe)
    with problems.collect():
        check_device(recipe.run.device)
    here = with_settings(recipe, {"run": {"device": "cpu"}}) if problems else recipe
    parts = Parts(here)  # without its device, to find what else is wrong
    for split in ("train", "validation", "test"):
        with problems.collect():
            tasks.append(getattr(parts.data, split))
    with problems.collect():
        check_kind(recipe.model.kind)
    params: Params = {"weight": torch.zeros(1)}
    if tasks:  # else there is nothing that a model could fit
        with problems.collect():
            params = parts.params
    with problems.collect():
        parts.optimiser(params)  # finds bad options
    problems.refuse()
    if ":" in recipe.model.kind:  # the first pass compares a module of the user's own with its two parts
        with torch.no_grad():
            parts.network.features(
                *for_test(parts.params, parts.buffers), tasks[0].episode(0).x_support, "batch"
            )
    return parts


def placed(recipe: Recipe) -> Recipe:
    """The recipe with the device that ``auto`` means here: a graphics card if torch has one."""
    if recipe.run.device != "auto":
        return recipe
    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    device = kind.type if kind is not None and kind.type in ("cuda", "mps") else "cpu"
    return with_settings(recipe, {"run": {"device": device}})


def check_device(device: str) -> None:
    """Refuses a device that torch does not have here."""
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        line = (str(error).splitlines() or ["unknown"])[0]
        raise UserError(f"run.device={device} does not work here ({line}): use run.device=cpu.") from None


def check_tasks(parts: Parts, whose: str) -> None:
    """Refuses test tasks that the network cannot take, or that have more classes than its head tells apart.

    A head that is not used is not asked: any number of classes goes with ``eval.head`` and with prototypes.
    """
    recipe = parts.recipe
    check_inputs(parts.data, parts.sizes, whose)
    refuse_mixed_ways(recipe, training=False)
    if recipe.eval.head != "learner" or not uses_head(recipe.inner.method):
        return
    if recipe.tasks.family in IMAGE_FAMILIES:
        outputs = recipe.model.outputs or parts.sizes.outputs
        ways = max(kind.ways for kind in build_kinds(recipe, training=False))
        if ways > outputs:
            raise UserError(
                f"{whose} tells {outputs} classes apart, and these tasks have {ways}: set "
                f"eval.ways={outputs}, or fit a head for every task with eval.head=logistic."
            )
