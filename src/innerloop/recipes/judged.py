"""Which tasks a recipe asks for, as far as the recipe alone tells it. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from innerloop.evaluation.episodes import FEW_SHOT, Episodes, TaskKind
from innerloop.recipes.schema import Kind, Recipe

IMAGE_FAMILIES = ("few-shot", "supervised")
"""Values of ``tasks.family`` whose tasks are drawn from pictures; held-out tasks are few-shot in both."""


def kinds_asked(recipe: Recipe, training: bool) -> list[Kind]:
    """The kinds of tasks; in evaluation ``eval.ways``, ``eval.shots`` and ``eval.queries`` come first.

    >>> recipe = Recipe.model_validate({"tasks": {"shots": 1}, "eval": {"shots": 5}})
    >>> [kinds_asked(recipe, training)[0].shots for training in (True, False)]
    [1, 5]
    """
    tasks, wanted = recipe.tasks, recipe.eval
    if tasks.mixture:
        return list(tasks.mixture)
    return [
        Kind(
            ways=tasks.ways if training else wanted.ways or tasks.ways,
            shots=tasks.shots if training else wanted.shots or tasks.shots,
            queries=tasks.queries if training else wanted.queries or tasks.queries,
            choice=tasks.choice,
            groups=tasks.groups,
        )
    ]


def pictures_asked(recipe: Recipe, split: str, pictures: str, grouping: str | None) -> Episodes:
    """The held-out episodes of a recipe whose tasks are drawn from pictures.

    Args:
        recipe: which tasks.
        split: ``test`` or ``validation``.
        pictures: stands for the classes and pictures of the split.
        grouping: stands for which class is in which group.
    """
    kinds = tuple(
        TaskKind(kind.shots, kind.queries, kind.ways, kind.choice, tuple(kind.groups), kind.share)
        for kind in kinds_asked(recipe, training=False)
    )
    return Episodes(
        FEW_SHOT,
        kinds,
        _count(recipe, split),
        recipe.eval.seed,
        split,
        pictures=pictures,
        grouping=grouping if any(kind.grouped for kind in kinds) else None,
        rotations=recipe.data.rotations,
        balanced=recipe.tasks.balanced,
    )


def family_asked(recipe: Recipe, split: str, family: str, settings: Mapping[str, Any]) -> Episodes:
    """The held-out episodes of a recipe whose tasks come from a family of functions.

    Args:
        recipe: which tasks.
        split: ``test`` or ``validation``.
        family: what it is called.
        settings: the family's, with its defaults filled in.
    """
    shots = recipe.eval.shots or recipe.tasks.shots
    queries = recipe.eval.queries or recipe.tasks.queries
    return Episodes(
        family,
        (TaskKind(shots, queries),),
        _count(recipe, split),
        recipe.eval.seed,
        split,
        noise=recipe.tasks.noise,
        settings=tuple(settings.items()),
    )


def _count(recipe: Recipe, split: str) -> int:
    if split not in ("test", "validation"):
        raise ValueError(f"held-out episodes are of the split test or validation, not of '{split}'.")
    return recipe.eval.episodes if split == "test" else recipe.eval.validation_episodes
