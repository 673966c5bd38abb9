"""Which tasks a recipe asks for, as far as the recipe alone tells it. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from innerloop.core.errors import UserError
from innerloop.evaluation.episodes import FEW_SHOT, Episodes, TaskKind
from innerloop.experiment.recipe.schema import Kind, Recipe
from innerloop.learners.table import LEARNERS, uses_head

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


def has_hard_tasks(recipe: Recipe) -> bool:
    """Whether training draws tasks of hard groups apart from others.

    >>> has_hard_tasks(Recipe.model_validate({"tasks": {"family": "few-shot", "hard_share": 0.5}}))
    True
    """
    tasks = recipe.tasks
    if tasks.family != FEW_SHOT or tasks.mixture:
        return False
    return tasks.hard_share is not None or recipe.outer.hard_weight != 1


def refuse_mixed_ways(recipe: Recipe, training: bool) -> None:
    """Refuses a mixture of unequal ways where the network's own last layer predicts."""
    tasks, method = recipe.tasks, recipe.inner.method
    ways = sorted({kind.ways for kind in tasks.mixture})
    if tasks.family not in IMAGE_FAMILIES or len(ways) < 2 or not uses_head(method):
        return
    by_rows = training and tasks.family == FEW_SHOT and recipe.outer.objective != "multitask"
    if not by_rows and recipe.eval.head != "learner":
        return
    listed = f"{', '.join(map(str, ways[:-1]))} and {ways[-1]}"
    free = ", ".join(name for name, entry in LEARNERS.items() if entry.own_head)
    heads = "" if by_rows else ", or fit a head to every task with eval.head=logistic"
    raise UserError(
        f"inner.method={method} predicts with the network's last layer, which fixes the ways, and the kinds "
        f"of tasks.mixture have {listed}: give all kinds the same ways, or set inner.method to a learner "
        f"that makes its own head ({free}){heads}."
    )


def pictures_asked(recipe: Recipe, split: str, pictures: str, grouping: str | None) -> Episodes:
    """The held-out episodes of a recipe whose tasks are drawn from pictures."""
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


def shapes_asked(recipe: Recipe) -> dict[str, Any]:
    """Ways, shots and queries of the tasks that are judged; of a mixture, lists over its kinds.

    >>> mixture = [{"ways": 5, "shots": 1}, {"ways": 3, "shots": 4, "share": 2}]
    >>> shapes_asked(Recipe.model_validate({"tasks": {"family": "few-shot", "mixture": mixture}}))
    {'ways': [5, 3], 'shots': [1, 4], 'queries': [15, 15], 'shares': [1.0, 2.0]}
    """
    tasks, wanted = recipe.tasks, recipe.eval
    if tasks.family not in IMAGE_FAMILIES:
        return {"shots": wanted.shots or tasks.shots, "queries": wanted.queries or tasks.queries}
    kinds = kinds_asked(recipe, training=False)
    shapes = {name: [getattr(kind, name) for kind in kinds] for name in ("ways", "shots", "queries")}
    if len(kinds) == 1:
        return {name: values[0] for name, values in shapes.items()}
    return {**shapes, "shares": [kind.share for kind in kinds]}


def family_asked(recipe: Recipe, split: str, family: str, settings: Mapping[str, Any]) -> Episodes:
    """The held-out episodes of a recipe whose tasks come from a family of functions."""
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
