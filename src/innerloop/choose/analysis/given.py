"""What was typed behind ``analyze KIND``: a problem or none, its settings, and those of the analysis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from innerloop.core.errors import Problems, UserError
from innerloop.experiment.recipe.flat import FlatSettings, flat_reading
from innerloop.experiment.recipe.library import load_recipe, named, shipped_names
from innerloop.experiment.recipe.rules import unread
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import typed_keys

PICTURES = "pictures-maml"
"""The recipe that is looked at where only pictures are named: analyses are about inner loops."""


class Given(NamedTuple):
    """What to analyse."""

    settings: FlatSettings
    recipe: Recipe | None
    source: str | None
    notes: list[str]


def understand(kind: str, model: type[FlatSettings], items: Sequence[str], *, trust: bool = False) -> Given:
    """The problem that stands first, if any, with its ``section.key=value``, and the flat settings."""
    problems = Problems()
    source = items[0] if items and "=" not in items[0] and not items[0].startswith("-") else None
    rest = list(items[1:] if source else items)
    late = [item for item in rest if item in shipped_names()]
    if late:
        problems.add(f"the recipe comes first, then settings: `innerloop analyze {kind} {late[0]} …`.")
        source, rest = source or late[0], [item for item in rest if item not in late]
    dotted = [item for item in rest if "." in item.partition("=")[0]]
    recipe: Recipe | None = None
    if source is not None and model.NO_RECIPE:
        with problems.collect():
            if named(source).kind != "family":
                raise UserError(model.NO_RECIPE)
            rest = [f"tasks={source}", *rest]
        source = None
    elif source is not None:
        recipe = Recipe()  # where there is no such recipe, settings are still judged as if there were one
        with problems.collect():
            recipe = load_recipe(source, dotted, trust=trust, pictures=PICTURES)
    else:
        fix = model.NO_RECIPE or f"name one first, as in `analyze {kind} RECIPE …`."
        problems.add(*(f"{item} belongs to a recipe: {fix}" for item in dotted))
    reading: Any = flat_reading(model, [i for i in rest if i not in dotted], f"analyze {kind}", recipe)
    problems.add(*reading.problems)
    problems.refuse()
    notes = [] if recipe is None else unread(recipe, typed_keys(dotted))
    return Given(reading.model, recipe, source, notes)
