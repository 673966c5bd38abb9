"""Weights on the tasks of a batch, one task at a time: the slow twin of weighted meta-gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from innerloop.core.types import Batch
from innerloop.learners import Objective

Tree = dict[str, Tensor]


def weight(hard: Sequence[bool], place: int, zeta: float) -> float:
    """ζ/(hζ+e) of a hard task and 1/(hζ+e) of another, counted by hand (Landscape, C.1)."""
    total = 0.0
    for one in hard:
        total += zeta if one else 1.0
    return (zeta if hard[place] else 1.0) / total


def gradient(
    objective: Objective, params: Tree, buffers: Tree, batch: Batch, hard: Sequence[bool], zeta: float
) -> Tree:
    """Every task's gradient, or direction, times its weight, added up."""
    total = {name: torch.zeros_like(value) for name, value in params.items()}
    for place, task in enumerate(batch.tasks()):
        if objective.direction is not None:
            grads = objective.direction(params, buffers, task)[0]
        else:
            assert objective.loss is not None
            leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
            loss, _ = objective.loss(leaves, buffers, task)
            found = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
            grads = dict(zip(leaves, found, strict=True))
        for name, value in grads.items():
            total[name] = total[name] + weight(hard, place, zeta) * value.detach()
    return total
