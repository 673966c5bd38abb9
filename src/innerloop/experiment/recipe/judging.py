"""Recipes that judge a run or a pretrained backbone on other pictures or tasks. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError
from innerloop.core.paths import user_path
from innerloop.experiment.recipe.grammar import Items, as_items
from innerloop.experiment.recipe.library import look_at, own_pictures
from innerloop.experiment.recipe.picture_fit import fitted_shape, number, pictures_of, span, with_settings
from innerloop.experiment.recipe.protocols import IMAGE_FAMILIES, kinds_asked
from innerloop.experiment.recipe.rules import NOTHING, WITH_WEIGHTS
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe, parse_assignments, typed_keys
from innerloop.experiment.recipe.trust import admit


def with_pictures(run: Path, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Settings that judge a run on a folder which stands among them, and what is said of it."""
    folders = folders_among(words)
    items = [word for word in words if word not in folders]
    if not folders:
        return items, []
    recipe = look_at(run, items)
    if len(folders) > 1:
        raise UserError(f"a run is judged on one folder at a time: leave out {list(folders)[1]}.")
    ((word, name),) = folders.items()
    if recipe.tasks.family not in IMAGE_FAMILIES:
        raise UserError(
            f"{run} was trained on tasks of the family {recipe.tasks.family}, which are not pictures: leave "
            f"out {word}."
        )
    if user_path(recipe.data.name).resolve() == user_path(name).resolve():
        return items, []
    return judged_on(recipe, name, items)


def has_pictures(words: Sequence[str]) -> bool:
    """Whether a folder of pictures stands among settings."""
    return bool(folders_among(words))


def folders_among(words: Sequence[str]) -> dict[str, str]:
    """Folders of pictures among words, and what ``data.name`` is to be for each."""
    names = {word: own_pictures(word) for word in words if "=" not in word or Path(word).exists()}
    return {word: name for word, name in names.items() if name is not None}


def judged_on(recipe: Recipe, name: str, items: list[str]) -> tuple[list[str], list[str]]:
    """Settings for a folder that the run has not seen; size and colour are brought to the run's later."""
    typed = typed_keys(items)
    free: dict[str, Any] = {"splits": None, "split_file": None, "on_bad": "refuse", "leave_out": 0}
    free = {key: value for key, value in free.items() if f"data.{key}" not in typed}
    seen = pictures_of(with_settings(recipe, {"data": {"name": name, **free}}).data)
    if seen.divided:
        free["splits"] = "test"
    classes = list(seen.counts) if seen.divided else seen.splits.get("test", [])
    if len(classes) < 2:
        raise UserError(
            f"{name} has {number(len(classes), 'class', 'classes')} to test on, and tasks need two or more: "
            "add classes."
        )
    counts = [seen.counts[one] for one in classes]
    shape, words = _shape(recipe, len(classes), min(counts), typed)
    told = f"{len(classes)} classes of {span(counts)} pictures to test on: {words}"
    new = {key: value for key, value in free.items() if value != getattr(recipe.data, key)}
    more = [*as_items({"data": {"name": name, **new}}), *as_items(shape, "eval.")]
    return [*items, *more], [told]


def _shape(recipe: Recipe, classes: int, least: int, typed: set[str]) -> tuple[dict[str, int], str]:
    """Settings for tasks that a folder cannot give as the run has them, and the shape in words."""
    if recipe.tasks.mixture:
        return {}, "tasks.mixture as in training"
    asked = kinds_asked(recipe, training=False)[0]
    shots = asked.shots if "eval.shots" in typed else min(asked.shots, max(1, least - 1))
    queries = asked.queries if "eval.queries" in typed else max(1, min(asked.queries, least - shots))
    ways = asked.ways if "eval.ways" in typed else min(asked.ways, classes)
    shape = {"ways": ways, "shots": shots, "queries": queries}
    words = f"{ways}-way {shots}-shot with {number(queries, 'query', 'queries')}"
    return {key: value for key, value in shape.items() if value != getattr(asked, key)}, words


_SHOWN = ("augment", "auto", "standardise", "size", "colour")
"""How a run's network was shown its pictures: a backbone has its own way."""
_PROTOCOL = (
    "episodes",
    "seed",
    "ways",
    "shots",
    "queries",
    "C",
    "normalise_features",
    "baselines",
    "predictions",
)


def backbone_recipe(backbone: str, items: Items = (), like: Recipe | None = None) -> Recipe:
    """A recipe that trains nothing and judges a backbone by a head on its features."""
    if not backbone.startswith(WITH_WEIGHTS) and ":" not in backbone:
        from innerloop.nets.factory import BACKBONES, backbone_hint

        if backbone not in BACKBONES:
            raise UserError(
                f"unknown backbone '{backbone}'{backbone_hint(backbone)}: set efficientnet-lite0, "
                "timm:NAME or hf:NAME-or-FOLDER."
            )
    given = parse_assignments(items)
    if like is None and not any(key == "data" or key.startswith("data.name") for key in given):
        raise UserError(
            f"which pictures is {backbone} to be judged on? Add data.name=NAME (`innerloop data ls` lists "
            "them) or a folder, or --against RUN for those of a run."
        )
    base: dict[str, Any] = {
        "model": {"kind": backbone},
        "inner": {"method": "none", "loss": "cross-entropy"},
        "outer": {"objective": NOTHING},
        **(_tasks_of_one_shot() if like is None else _tasks_of(like)),
    }
    recipe = make_recipe(base, items)
    if like is None and not recipe.tasks.mixture and user_path(recipe.data.name).exists():
        data = recipe.data.model_copy(update={"splits": None})  # a split of all classes is still that folder
        shape = fitted_shape(pictures_of(data), recipe, typed_keys(items))
        recipe = with_settings(recipe, {"tasks": shape})
    recipe = admit(recipe, {"model.kind", *typed_keys(items)}, backbone, trust=False)
    if "name" in given:
        return recipe
    what = re.sub(r"[^\w.]+", "-", f"{Path(recipe.data.name).name}-{recipe.model.kind}").strip("-.")
    return recipe.model_copy(update={"name": what})


def with_folder(backbone: str, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Settings that judge a backbone on a folder which stands among them, and what is said of it."""
    folders = folders_among(words)
    items = [word for word in words if word not in folders]
    if len(folders) > 1:
        raise UserError(f"a backbone is judged on one folder at a time: leave out {list(folders)[1]}.")
    if not folders or any("=" not in item for item in items):
        return items, []
    (name,) = folders.values()
    return judged_on(backbone_recipe(backbone, [*items, f"data.name={name}"]), name, items)


def _tasks_of_one_shot() -> dict[str, Any]:
    return {
        "tasks": {"family": "few-shot", "ways": 5, "shots": 1, "queries": 15},
        "eval": {"head": "logistic"},
    }


def _tasks_of(like: Recipe) -> dict[str, Any]:
    """The pictures, the tasks and the protocol of another recipe; its head, where that is one on features."""
    data = like.data.model_dump(exclude_none=True, exclude=set(_SHOWN))
    if like.data.size is not None and user_path(like.data.name).is_dir():
        data["size"] = like.data.size  # pictures of unequal sizes need one to be stored; files are read anew
    names = ("ways", "shots", "queries", "choice", "groups", "balanced", "mixture")
    tasks = {name: like.tasks.model_dump(exclude_none=True)[name] for name in names}
    protocol = {n: v for n, v in like.eval.model_dump(exclude_none=True).items() if n in _PROTOCOL}
    head = like.eval.head if like.eval.head not in ("learner", "finetune") else "logistic"
    return {"data": data, "tasks": {"family": "few-shot", **tasks}, "eval": {**protocol, "head": head}}
