"""The arguments of ``FewShotClassifier`` as a recipe, and a recipe as such arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from innerloop.core.errors import UserError
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe

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
"""What each argument is called in a recipe; ``augment`` is a word there."""

ADAPTING = ("head", "C", "normalise")
"""What may change after training."""

_SMALLEST_POOLED = 16  # four times 2×2 pooling leaves nothing of less


def recipe_for(arguments: Mapping[str, Any], side: int) -> Recipe:
    """What a ``FewShotClassifier`` trains: a Conv4 as a prototypical network, on pictures of this side.

    >>> recipe = recipe_for({"filters": 8, "head": "svm"}, 28)
    >>> recipe.inner.method, recipe.model.kind, recipe.model.filters, recipe.eval.head
    ('protonet', 'conv4', 8, 'svm')
    """
    data: dict[str, dict[str, Any]] = {
        "data": {"name": "arrays", "augment": "lee2019" if arguments.get("augment") else "none"},
        "tasks": {"family": "few-shot"},
        "model": {"kind": "conv4", "pooling": "max" if side >= _SMALLEST_POOLED else "stride"},
        "inner": {"method": "protonet", "loss": "cross-entropy"},
        "run": {"execution": "threads" if arguments.get("batch", 1) > 1 else "loop", "compile": "off"},
    }
    return _set({"name": "few-shot-classifier", **data}, arguments)


def backbone_recipe(name: str, arguments: Mapping[str, Any]) -> Recipe:
    """How a pretrained backbone of that name adapts, by the ``head`` and its arguments.

    >>> backbone_recipe("efficientnet-lite0", {"head": "svm"}).model.kind
    'efficientnet-lite0'
    """
    recipe = recipe_for(arguments, _SMALLEST_POOLED)
    return recipe.model_copy(update={"model": recipe.model.model_copy(update={"kind": name})})


def with_adaptation(recipe: Recipe, arguments: Mapping[str, Any]) -> Recipe:
    """The recipe with the ``head``, ``C`` and ``normalise`` that a classifier has now."""
    return _set(recipe.model_dump(), {name: arguments[name] for name in ADAPTING})


def arguments_of(recipe: Recipe) -> dict[str, Any]:
    """The arguments of a ``FewShotClassifier`` that say the same as this recipe, as far as they can.

    >>> arguments_of(recipe_for({"filters": 8, "augment": True}, 28))["augment"]
    True
    """
    arguments: dict[str, Any] = {"augment": recipe.data.augment != "none"}
    for argument, key in KEYS.items():
        section, _, name = key.partition(".")
        arguments[argument] = getattr(getattr(recipe, section), name)
    return arguments


def _set(data: dict[str, Any], arguments: Mapping[str, Any]) -> Recipe:
    for argument, value in arguments.items():
        if argument in KEYS:
            section, _, name = KEYS[argument].partition(".")
            data.setdefault(section, {})[name] = value.item() if isinstance(value, np.generic) else value
    try:
        return make_recipe(data)
    except UserError as error:
        text = str(error)
        for argument, key in KEYS.items():  # whoever called from Python knows these names only
            text = text.replace(key, argument)
        raise UserError(text) from None
