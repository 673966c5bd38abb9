"""What advice is asked for: a recipe, pictures or a family of tasks first, then settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from innerloop.choose.advisor.methods import NETWORK, NUMBERS, PICTURES
from innerloop.choose.advisor.settings import Advise
from innerloop.core.errors import Problems, UserError
from innerloop.core.importing import Trusted
from innerloop.core.place import user_path
from innerloop.experiment.recipe.flat import flat_reading
from innerloop.experiment.recipe.library import Named, fitted_recipe, load_recipe, named
from innerloop.experiment.recipe.rules import PICTURES as PICTURE_FAMILIES
from innerloop.experiment.recipe.rules import unread
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe, typed_keys

Kind = Literal["pictures", "labels", "numbers"]


class Asked(NamedTuple):
    """What advice is asked for."""

    source: str
    settings: Advise
    recipe: Recipe
    named: bool
    lines: list[str]
    notes: list[str]
    said: frozenset[str] = frozenset()

    @property
    def kind(self) -> Kind:
        """What targets are: classes of pictures, other labels, or numbers."""
        if self.recipe.tasks.family in PICTURE_FAMILIES:
            return "pictures"
        return "labels" if self.recipe.inner.loss.startswith("cross-entropy") else "numbers"


def understand(source: str, items: Sequence[str], *, trust: bool = False) -> Asked:
    """What ``innerloop advise SOURCE ITEMS…`` means."""
    problems, recipe, lines = Problems(), None, list[str]()
    of_recipe = [item for item in items if _is_of_recipe(item)]
    own = [item for item in items if not _is_of_recipe(item)]
    what = Named("recipe", source)
    with problems.collect():
        if "=" in source or source.startswith("-"):
            raise UserError(
                "a recipe, a dataset or a folder comes first, then settings: "
                f"`innerloop advise glyphs {source}`."
            )
        what = named(source)
        recipe, lines = _recipe(what, of_recipe, trust)
    reading: Any = flat_reading(Advise, own, "advise", recipe)
    problems.add(*reading.problems)
    problems.refuse()
    assert recipe is not None
    said = typed_keys(of_recipe)
    of_user = what.kind == "recipe"
    notes = unread(recipe, sorted(said)) if of_user else []
    return Asked(source, reading.model, recipe, of_user, lines, notes, frozenset(said))


def _is_of_recipe(item: str) -> bool:
    key = item.partition("=")[0].strip()
    return "=" in item and ("." in key or key == "seed")


def _recipe(what: Named, items: Sequence[str], trust: bool) -> tuple[Recipe, list[str]]:
    if what.kind == "recipe":
        return load_recipe(what.name, items, trust=trust), []
    if what.kind == "pictures":
        return _of_pictures(what.name, items)
    from innerloop.tasks.families import get_family

    get_family(Trusted(what.name))  # typed
    return _of_family(Trusted(what.name), items), []


def _of_pictures(source: str, items: Sequence[str]) -> tuple[Recipe, list[str]]:
    first = PICTURES["protonet"].settings
    data: dict[str, Any] = {section: dict(values) for section, values in first.items()}
    data["data"] = {"name": source, "auto": True, "standardise": True}
    data["model"] = {**NETWORK, **data["model"]}
    name = user_path(source).name or "pictures"
    recipe, lines = fitted_recipe({"name": f"advise-{name}", **data}, items, source)
    if recipe.data.augment != "none" and "data.augment" not in typed_keys(items):
        lines.append(
            "not so for MAML, which did worse with it, nor for ANIL and R2D2, which were not tried with it: "
            "they see the pictures as they are"
        )
    return recipe, lines


def _of_family(source: str, items: Sequence[str]) -> Recipe:
    data = {section: dict(values) for section, values in NUMBERS["maml"].settings.items()}
    name = f"advise-{source.replace(':', '-')}"
    tasks = {"family": source, "shots": 10, "queries": 10}
    return make_recipe({"name": name, **data, "tasks": tasks}, items)
