"""Bridge's multi-task loss with a row per class, one picture and one class at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from innerloop.core.types import Task

Tree = dict[str, Tensor]


def task_loss(features: Callable[[Tensor], Tensor], rows: Tensor, task: Task, normalise: bool) -> Tensor:
    """Mean over all pictures of the task of −log softmax of the products with its classes' rows.

    Args:
        features: pictures → features, of support and query in one batch.
        rows: (classes, features), without a bias.
        task: ``id`` lists its classes.
        normalise: whether features are divided by their length.
    """
    z = features(torch.cat([task.x_support, task.x_query]))
    labels = [int(y) for y in (*task.y_support, *task.y_query)]
    losses = []
    for vector, label in zip(z, labels, strict=True):
        if normalise:
            vector = vector / vector.pow(2).sum().sqrt()
        logits = [sum(vector * rows[int(c)]) for c in task.id]
        total = sum(torch.exp(value) for value in logits)
        losses.append(torch.log(torch.as_tensor(total)) - logits[label])
    return torch.stack([torch.as_tensor(value) for value in losses]).sum() / len(losses)


def accumulated(losses: Sequence[Tensor], leaves: Tree) -> Tree:
    """Gradients as gradient accumulation makes them: backward of each task's share, one after the other."""
    for leaf in leaves.values():
        leaf.grad = None
    for loss in losses:
        (loss / len(losses)).backward()
    return {n: torch.zeros_like(v) if v.grad is None else v.grad.clone() for n, v in leaves.items()}
