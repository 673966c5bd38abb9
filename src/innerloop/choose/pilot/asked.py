"""What is searched for, from the command line: a dataset or a recipe first, then settings.

Importing this does not import torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from innerloop.choose.pilot.settings import Common, model_for
from innerloop.core.errors import Problems, UserError
from innerloop.core.place import user_path
from innerloop.experiment.recipe.flat import flat_reading
from innerloop.experiment.recipe.library import load_recipe, named
from innerloop.experiment.recipe.problems import allowed, settings_of
from innerloop.experiment.recipe.rules import PICTURES, unread
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe, typed_keys

TRAINING_WAYS = 10
"""Classes of a training task, where a dataset is named and has that many."""

BASE: Mapping[str, Any] = {
    "tasks": {"family": "few-shot", "ways": TRAINING_WAYS, "shots": 1, "queries": 3},
    "model": {"kind": "cells", "norm": "running"},
    "inner": {"method": "protonet", "loss": "cross-entropy"},
    "outer": {"steps": 10_000, "batch": 1, "optimiser": "adam", "lr": 2e-3, "schedule": "cosine"},
    "eval": {"ways": 5, "shots": 1, "queries": 15},
}
"""How candidates are trained on a dataset: prototypes, which have no settings of their own to be tuned."""

CLASSIFIER: Mapping[str, Any] = {
    "tasks": {"family": "supervised", "minibatch": 32},
    "outer": {
        "objective": "erm",
        "steps": 10_000,
        "batch": 1,
        "optimiser": "sgd",
        "lr": 0.05,
        "options": {"momentum": 0.9, "weight_decay": 5e-4, "nesterov": True},
        "schedule": "cosine",
        "warmup": 100,
    },
}
"""And where classes have many pictures: one classifier of all training classes, which learns more from as
many pictures (RFS). Prototypes judge it."""

TRAINING = "training"
"""Among what may be fitted to the data: how candidates are trained."""

SET_BY_SPACE = ("kind", "settings", "hidden", "filters", "pooling", "activation", "bias", "init")


class Asked(NamedTuple):
    """What to search for."""

    source: str
    settings: Common
    recipe: Recipe
    free: tuple[str, ...]
    notes: list[str]


def understand(source: str, items: Sequence[str], *, validate: bool, trust: bool = False) -> Asked:
    """What ``innerloop search SOURCE ITEMS…`` means."""
    problems = Problems()
    own, of_recipe = _divided(items)
    recipe: Recipe | None = None
    with problems.collect():
        if "=" in source or source.startswith("-"):
            raise UserError(
                f"a dataset or a recipe comes first, then settings: `innerloop search glyphs {source}`."
            )
        with problems.collect():
            recipe = _recipe(source, of_recipe, trust)
        if recipe is not None:
            problems.add(*_unfit(recipe))
    model = model_for(validate, _space(own))
    reading: Any = flat_reading(model, own, "search", recipe)
    problems.add(*reading.problems)
    problems.refuse()
    assert recipe is not None
    typed = typed_keys(of_recipe)
    set_here = sorted(key for key in typed if key in {f"model.{name}" for name in SET_BY_SPACE})
    notes = [f"{key} is not read by a search: its network comes from the space" for key in set_here]
    notes += unread(recipe, sorted(typed - set(set_here)))
    return Asked(source, reading.model, recipe, _free(source, typed), notes)


def _free(source: str, typed: Collection[str]) -> tuple[str, ...]:
    """What the data may decide: nothing that a recipe says, or that was typed."""
    if named(source).kind != "pictures":
        return ()
    of_training = any(key.startswith(("tasks.", "inner.", "outer.")) for key in typed)
    return (*(() if "tasks.ways" in typed else ("tasks.ways",)), *(() if of_training else (TRAINING,)))


def _divided(items: Sequence[str]) -> tuple[list[str], list[str]]:
    """Settings of the search, and of the recipe."""
    own: list[str] = []
    of_recipe: list[str] = []
    for item in items:
        key = item.partition("=")[0].strip()
        if key == "space":
            item = item.replace("space", "space.name", 1)
        theirs = "=" in item and ((("." in key) and not key.startswith("space.")) or key == "seed")
        (of_recipe if theirs else own).append(item)
    return own, of_recipe


def _space(own: Sequence[str]) -> str:
    named = [item.partition("=")[2].strip("'\" ") for item in own if item.startswith("space.name=")]
    return named[0] if named else "cells"


def _recipe(source: str, items: Sequence[str], trust: bool) -> Recipe:
    kind, name = named(source)
    if kind != "pictures":
        return load_recipe(source, items, trust=trust)
    called = user_path(name).name or "pictures"
    data = {"name": name, "standardise": True}
    return make_recipe({"name": f"search-{called}", "data": data, **BASE}, items)


def _unfit(recipe: Recipe) -> list[str]:
    """Why candidates cannot be trained by this recipe."""
    said = []
    if recipe.tasks.family not in PICTURES:
        said.append(
            f"a search looks for networks of pictures, and tasks.family={recipe.tasks.family} has none: name "
            "a dataset, or a recipe of tasks.family=few-shot or supervised."
        )
    if recipe.inner.lr == "auto":
        said.append("a search trains every candidate at one rate: set inner.lr to a number.")
    if recipe.outer.teacher is not None:
        said.append("a search has no teacher for its candidates: set outer.teacher=none.")
    return said


class ListedKey(NamedTuple):
    """A setting of a search, its default, what it takes and what it means."""

    key: str
    default: Any
    takes: str
    meaning: str


def listed_keys(validate: bool, items: Sequence[str] = ()) -> list[ListedKey]:
    """Every setting of a search."""
    model = model_for(validate, _space(_divided(items)[0]))
    return [
        ListedKey(key, field.default, allowed(field), field.description or "")
        for key, field in settings_of(model).items()
    ]
