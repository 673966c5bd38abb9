"""Maths on parameter dicts. Every function returns a new dict and leaves its arguments alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from innerloop.core.types import Params


def tree_map(fn: Callable[..., Tensor], first: Mapping[str, Tensor], *rest: Mapping[str, Tensor]) -> Params:
    """``fn`` applied name by name."""
    return {name: fn(value, *(other[name] for other in rest)) for name, value in first.items()}


def add_scaled(a: Mapping[str, Tensor], b: Mapping[str, Tensor], scale: float | Tensor) -> Params:
    """``a + scale · b`` on the names of ``b``; other entries of ``a`` pass through."""
    return {**a, **{name: a[name] + scale * value for name, value in b.items()}}


def detach(tree: Mapping[str, Tensor]) -> Params:
    """The same values, cut from any graph."""
    return {name: value.detach() for name, value in tree.items()}


def select(tree: Mapping[str, Tensor], names: Iterable[str]) -> Params:
    """The entries of those names, in that order."""
    return {name: tree[name] for name in names}


def split_prefix(tree: Mapping[str, Tensor], prefix: str) -> tuple[Params, Params]:
    """Entries whose name starts with ``prefix`` (kept whole), and the others."""
    inside = {k: v for k, v in tree.items() if k.startswith(prefix)}
    return inside, {k: v for k, v in tree.items() if k not in inside}


def mean_over_tasks(trees: list[Params]) -> Params:
    """The average of equal-shaped trees, summed in list order so that it never depends on timing."""
    if len(trees) == 1:
        return dict(trees[0])
    total = dict(trees[0])
    for tree in trees[1:]:
        total = {name: total[name] + value for name, value in tree.items()}
    return {name: value / len(trees) for name, value in total.items()}


def dot(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Tensor:
    """The inner product over all entries."""
    return torch.stack([(a[name] * b[name]).sum() for name in a]).sum()


def global_norm(tree: Mapping[str, Tensor]) -> Tensor:
    """The Euclidean norm over all entries."""
    return torch.nn.utils.get_total_norm(list(tree.values())) if tree else torch.zeros(())


def count(tree: Mapping[str, Tensor]) -> int:
    """How many numbers there are."""
    return sum(value.numel() for value in tree.values())


def first_not_finite(tree: Mapping[str, Tensor]) -> str | None:
    """The name of the first tensor with an entry that is not finite; None if there is none."""
    return next((name for name, value in tree.items() if not bool(torch.isfinite(value).all())), None)
