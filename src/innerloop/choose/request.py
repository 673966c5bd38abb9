"""What ``advise`` and ``search`` are asked: what is meant first, then settings. Imports no torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from innerloop.choose.methods import NETWORK, NUMBERS, PICTURES
from innerloop.choose.settings import AdviseSettings, SpaceSettings, model_for
from innerloop.core.errors import Problems, UserError
from innerloop.core.importing import Trusted
from innerloop.core.paths import user_path
from innerloop.experiment.recipe.flat import describe, flat_reading
from innerloop.experiment.recipe.library import ProblemName, fitted_recipe, load_recipe, named
from innerloop.experiment.recipe.rules import PICTURES as PICTURE_FAMILIES
from innerloop.experiment.recipe.rules import unread
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

TaskKind = Literal["pictures", "labels", "numbers"]
Settings = TypeVar("Settings", bound=AdviseSettings | SpaceSettings)


class Request(NamedTuple, Generic[Settings]):
    """What advice or a search is asked: settings ``said`` of the recipe, what the data decide (free)."""

    source: str
    settings: Settings
    recipe: Recipe
    notes: list[str]
    lines: Sequence[str] = ()
    named: bool = False
    said: frozenset[str] = frozenset()
    free: tuple[str, ...] = ()

    @property
    def kind(self) -> TaskKind:
        """What targets are: classes of pictures, other labels, or numbers."""
        if self.recipe.tasks.family in PICTURE_FAMILIES:
            return "pictures"
        return "labels" if self.recipe.inner.loss.startswith("cross-entropy") else "numbers"


def read_advise(source: str, items: Sequence[str], *, trust: bool = False) -> Request[AdviseSettings]:
    """What ``innerloop advise SOURCE ITEMS…`` means."""
    problems, recipe, lines = Problems(), None, list[str]()
    own, of_recipe = _divided(items)
    what = ProblemName("recipe", source)
    with problems.collect():
        _refuse_settings_first(source, "advise", "a recipe, a dataset or a folder")
        what = named(source)
        recipe, lines = _advised_recipe(what, of_recipe, trust)
    reading: Any = flat_reading(AdviseSettings, own, "advise", recipe)
    problems.add(*reading.problems)
    problems.refuse()
    assert recipe is not None
    said = typed_keys(of_recipe)
    of_user = what.kind == "recipe"
    notes = unread(recipe, sorted(said)) if of_user else []
    return Request(source, reading.model, recipe, notes, lines, of_user, frozenset(said))


def read_search(
    source: str, items: Sequence[str], *, validate: bool, trust: bool = False
) -> Request[SpaceSettings]:
    """What ``innerloop search SOURCE ITEMS…`` means."""
    problems, recipe = Problems(), None
    own, of_recipe = _divided_search(items)
    with problems.collect():
        _refuse_settings_first(source, "search", "a dataset or a recipe")
        with problems.collect():
            recipe = _searched_recipe(source, of_recipe, trust)
        if recipe is not None:
            problems.add(*_unfit(recipe))
    reading: Any = flat_reading(model_for(validate, _space(own)), own, "search", recipe)
    problems.add(*reading.problems)
    problems.refuse()
    assert recipe is not None
    typed = typed_keys(of_recipe)
    set_here = sorted(key for key in typed if key in {f"model.{name}" for name in SET_BY_SPACE})
    notes = [f"{key} is not read by a search: its network comes from the space" for key in set_here]
    notes += unread(recipe, sorted(typed - set(set_here)))
    return Request(source, reading.model, recipe, notes, free=_free(source, typed))


def _refuse_settings_first(source: str, verb: str, what: str) -> None:
    if "=" in source or source.startswith("-"):
        raise UserError(f"{what} comes first, then settings: `innerloop {verb} glyphs {source}`.")


def _divided(items: Sequence[str], own_section: str = "") -> tuple[list[str], list[str]]:
    """Settings of the command, which may have a section of its own, and of the recipe."""
    own: list[str] = []
    of_recipe: list[str] = []
    for item in items:
        key = item.partition("=")[0].strip()
        ours = bool(own_section) and key.startswith(f"{own_section}.")
        (of_recipe if "=" in item and not ours and ("." in key or key == "seed") else own).append(item)
    return own, of_recipe


def _divided_search(items: Sequence[str]) -> tuple[list[str], list[str]]:
    """The same of a search, where ``space=`` is short for ``space.name=``."""
    short = (item.partition("=")[0].strip() == "space" for item in items)
    whole = [i.replace("space", "space.name", 1) if s else i for i, s in zip(items, short, strict=True)]
    return _divided(whole, "space")


def _advised_recipe(what: ProblemName, items: Sequence[str], trust: bool) -> tuple[Recipe, list[str]]:
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


def _searched_recipe(source: str, items: Sequence[str], trust: bool) -> Recipe:
    kind, name = named(source)
    if kind != "pictures":
        return load_recipe(source, items, trust=trust)
    called = user_path(name).name or "pictures"
    data = {"name": name, "standardise": True}
    return make_recipe({"name": f"search-{called}", "data": data, **BASE}, items)


def _unfit(recipe: Recipe) -> list[str]:
    """Why candidates cannot be trained by this recipe."""
    said = []
    if recipe.tasks.family not in PICTURE_FAMILIES:
        said.append(
            f"a search looks for networks of pictures, and tasks.family={recipe.tasks.family} has none: name "
            "a dataset, or a recipe of tasks.family=few-shot or supervised."
        )
    if recipe.inner.lr == "auto":
        said.append("a search trains every candidate at one rate: set inner.lr to a number.")
    if recipe.outer.teacher is not None:
        said.append("a search has no teacher for its candidates: set outer.teacher=none.")
    return said


def _free(source: str, typed: Collection[str]) -> tuple[str, ...]:
    """What the data may decide: nothing that a recipe says, or that was typed."""
    if named(source).kind != "pictures":
        return ()
    of_training = any(key.startswith(("tasks.", "inner.", "outer.")) for key in typed)
    return (*(() if "tasks.ways" in typed else ("tasks.ways",)), *(() if of_training else (TRAINING,)))


def _space(own: Sequence[str]) -> str:
    names = [item.partition("=")[2].strip("'\" ") for item in own if item.startswith("space.name=")]
    return names[0] if names else "cells"


def search_keys(validate: bool, items: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Every setting of a search: its default, what it takes and what it means."""
    rows = describe(model_for(validate, _space(_divided_search(items)[0])))
    return [{name: value for name, value in row.items() if name != "read"} for row in rows]
