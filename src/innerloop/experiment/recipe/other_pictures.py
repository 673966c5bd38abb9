"""Judging a run on a folder of pictures that is named instead of settings. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError
from innerloop.core.place import user_path
from innerloop.experiment.recipe.fitted import number, pictures_of, span, with_settings
from innerloop.experiment.recipe.judged import IMAGE_FAMILIES, kinds_asked
from innerloop.experiment.recipe.library import own_pictures
from innerloop.experiment.recipe.python import as_items
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import typed_keys
from innerloop.experiment.recipe.started import look_at


def with_pictures(run: Path, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Settings that judge a run on a folder which stands among them, and what is said of it.

    All classes of the folder are tested on, unless it is divided into ``train`` and ``test`` itself; pictures
    are brought to what the network was trained on, and tasks have no more ways, shots and queries than the
    folder allows. The folder that the run was trained on changes nothing: its test classes are meant anyway.
    """
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
    """Whether a folder of pictures stands among settings.

    >>> has_pictures(["eval.shots=1", "tasks.ways=5"])
    False
    """
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
