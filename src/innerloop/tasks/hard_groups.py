"""Which groups of classes (alphabets, superclasses) make hard tasks, and kinds of tasks made of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.types import TaskBatch
from innerloop.data.source import ImageSource
from innerloop.tasks.episodes import Kind
from innerloop.tasks.few_shot import few_shot_sampler, split_classes
from innerloop.theory.hardness import nearest_neighbour_error

QUERIES, EPISODES = 5, 40


def groups_of(source: ImageSource, split: str) -> dict[str, NDArray[np.int64]]:
    """The classes of every group that a split has classes of."""
    if source.groups is None:
        raise UserError(
            f"{source.name} has no groups of classes (alphabets, superclasses), and hard tasks are those of "
            "hard groups: leave out {hard_share} and {hard_weight}.",
            names=("hard_share", "hard_weight"),
        )
    pool = split_classes(source, split)
    members = {name: pool[source.groups[pool] == g] for g, name in enumerate(source.group_names)}
    return {name: classes for name, classes in members.items() if len(classes)}


def group_errors(source: ImageSource, split: str, ways: int, episodes: int = EPISODES) -> dict[str, float]:
    """Error of the nearest neighbour of raw pixels in 1-shot tasks within every group, hardest first."""
    # all groups are asked for as many ways, so that errors can be compared
    sizes = {name: len(classes) for name, classes in groups_of(source, split).items() if len(classes) > 1}
    most = min([ways, *sizes.values()])
    errors = {}
    for name in sizes:
        kind = Kind(most, 1, QUERIES, "one-group", (name,))
        batch = few_shot_sampler(source, split, seed=0, kinds=[kind]).episodes(range(episodes))
        assert isinstance(batch, TaskBatch)
        flat = batch._replace(x_support=batch.x_support.flatten(2), x_query=batch.x_query.flatten(2))
        errors[name] = float(nearest_neighbour_error(*flat[:4]).mean())
    return dict(sorted(errors.items(), key=lambda one: -one[1]))


def hardest_groups(
    source: ImageSource, split: str, ways: int, count: int, episodes: int = EPISODES
) -> tuple[str, ...]:
    """The ``count`` hardest groups by :func:`group_errors`.

    Args:
        source: the pictures.
        split: whose classes.
        ways: classes per episode.
        count: how many groups.
        episodes: of every group, to measure its error on.

    Raises:
        UserError: no group would be left that is easy.
    """
    groups = groups_of(source, split)
    if count >= len(groups):
        raise UserError(
            f"the split '{split}' of {source.name} has {len(groups)} groups, and some must be easy: "
            f"lower {{hardest}} to at most {len(groups) - 1}.",
            names=("hardest",),
        )
    return tuple(group_errors(source, split, ways, episodes))[:count]


def by_hardness(
    kind: Kind, source: ImageSource, split: str, hard: Sequence[str], share: float | None
) -> list[Kind]:
    """One kind of tasks as two: those of hard groups, and those of all others that it draws from."""
    groups = groups_of(source, split)
    drawn = {n: c for n, c in groups.items() if kind.groups is None or n in kind.groups}
    for name in hard:
        if name not in source.group_names:
            raise UserError(
                f"{source.name} has no group '{name}'{did_you_mean(name, drawn)}: correct {{hard_groups}}.",
                names=("hard_groups",),
            )
    mine, others = [n for n in drawn if n in hard], [n for n in drawn if n not in hard]
    if not mine or not others:
        raise UserError(
            f"of the {len(drawn)} groups that tasks of the split '{split}' of {source.name} are drawn from, "
            f"{'none' if not mine else 'all'} are hard: name others in {{hard_groups}}.",
            names=("hard_groups",),
        )
    counted = [_drawn_as(kind, [drawn[n] for n in names]) for names in (mine, others)]
    part = counted[0] / max(1, sum(counted)) if share is None else share
    two = (
        kind._replace(groups=tuple(mine), share=part, name="hard", hard=True),
        kind._replace(groups=tuple(others), share=1 - part, name="easy"),
    )
    return [one for one in two if one.share > 0]


def _drawn_as(kind: Kind, pools: list[NDArray[np.int64]]) -> int:
    """What a kind draws from: groups that are large enough, groups, or classes."""
    if kind.choice == "one-group":
        return sum(len(pool) >= kind.ways for pool in pools)
    return len(pools) if kind.choice == "across-groups" else sum(len(pool) for pool in pools)
