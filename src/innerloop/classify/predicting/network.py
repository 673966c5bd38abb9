"""The network of a predictor, from the look of its pictures and the number of its outputs alone."""

from __future__ import annotations

from innerloop.experiment.look import Look
from innerloop.experiment.model import build_network
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.sizes import Sizes
from innerloop.nets.network import Network


def sizes_for(look: Look, outputs: int, classes: int = 1) -> Sizes:
    """What pictures of this look ask of a network; ``classes`` are those of the training."""
    side, _, channels = look.shape  # features of a Conv4 take any width, and its head is not used then
    return Sizes((channels, side, side), outputs, outputs, classes, labels=True)


def network_for(recipe: Recipe, look: Look, outputs: int) -> Network:
    """The network of a recipe for pictures of this look, with as many outputs as it was trained with."""
    model = recipe.model.model_copy(update={"outputs": None})
    return build_network(recipe.model_copy(update={"model": model}), sizes_for(look, outputs))
