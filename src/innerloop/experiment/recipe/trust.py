"""Code that a recipe names. Importing a module runs it, so a file alone never decides what is imported.

A recipe may name code outside this library: ``model.kind``, ``tasks.family`` and ``inner.method`` take
``package.module:attribute``, some ``timm:`` models read files, and ``hf:`` models are read from folders. Such
names are used if the user typed them, or if the caller passes ``trust=True`` (the command: ``--trust``);
:func:`admit` then makes them :class:`~innerloop.core.importing.Trusted`, without which nothing is imported.

Every function that makes a recipe from a file to be *built* calls :func:`admit`; one to be looked at only
comes from :func:`innerloop.experiment.recipe.library.read_recipe`. Importing this file does not import torch.
"""

from __future__ import annotations

from collections.abc import Collection

from innerloop.core.importing import Trusted, check_trust, foreign_parts
from innerloop.core.importing import UntrustedCodeError as UntrustedCodeError
from innerloop.experiment.recipe.schema import Recipe

NAMES = ("model.kind", "tasks.family", "inner.method")
"""The settings that may name code."""


def foreign_code(recipe: Recipe) -> dict[str, str]:
    """The settings that would import code from outside or read files of a model, and what each names."""
    parts = foreign_parts(recipe.model.kind, recipe.model.settings)
    named = {f"model.{key}": name for key, name in parts.items()}
    own = {"tasks.family": recipe.tasks.family, "inner.method": recipe.inner.method}
    return named | {key: name for key, name in own.items() if ":" in name}


def admit(recipe: Recipe, typed: Collection[str], source: str, trust: bool) -> Recipe:
    """The recipe, with what it names trusted, if nothing in it would import code that only its file names."""
    return admit_all([recipe], typed, source, trust)[0]


def admit_all(recipes: list[Recipe], typed: Collection[str], source: str, trust: bool) -> list[Recipe]:
    """As :func:`admit`, for the recipes that a sweep makes of one file: what they name is reported once."""
    named = {
        key: name
        for recipe in recipes
        for key, name in foreign_code(recipe).items()
        if not (_is_typed(key, typed) or isinstance(name, Trusted))
    }
    check_trust(named, source, trust)
    return [trusted(recipe, NAMES) for recipe in recipes]


def trusted(recipe: Recipe, keys: Collection[str]) -> Recipe:
    """The recipe with the names of code that these keys give as tokens, without which nothing is imported."""
    for key in NAMES:
        section, _, name = key.partition(".")
        part = getattr(recipe, section)
        if key in keys and ":" in getattr(part, name):
            part = part.model_copy(update={name: Trusted(getattr(part, name))})
            recipe = recipe.model_copy(update={section: part})
    return recipe


def _is_typed(key: str, typed: Collection[str]) -> bool:
    """Whether the user typed this key, or a table that holds it whole."""
    parts = key.split(".")
    return any(".".join(parts[:n]) in typed for n in range(2, len(parts) + 1))
