"""UNICORN-MAML (one vector, copied to all rows) and averaging over label orders, as explicit loops."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from oracles import maml_loop
from oracles.forward import Forward

Tree = dict[str, Tensor]
Task = tuple[Tensor, ...]


def task_loss(
    forward: Forward,
    loss: Callable[[Tensor, Tensor], Tensor],
    body: Tree,
    vector: Tree,
    outputs: int,
    inner: maml_loop.Inner,
    task: Task,
) -> Tensor:
    """The query loss of MAML whose last layer starts as ``outputs`` copies of one row (and one bias)."""
    head = {name: torch.stack([value] * outputs) for name, value in vector.items()}
    return maml_loop.task_loss(forward, loss, {**body, **head}, inner, task)


def averaged_probabilities(
    forward: Forward,
    loss: Callable[[Tensor, Tensor], Tensor],
    params: Tree,
    inner: maml_loop.Inner,
    task: Task,
) -> Tensor:
    """Mean over all renumberings of the labels of the probabilities of every class, one by one."""
    xs, ys, xq = task[:3]
    outputs = forward(params, xq)[0].shape[-1]
    total, count = torch.zeros(len(xq), outputs, dtype=xq.dtype), 0
    for numbering in itertools.permutations(range(outputs)):
        renamed = torch.tensor([numbering[int(label)] for label in ys])
        leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
        adapted = maml_loop.adapt(forward, loss, leaves, inner, xs, renamed)
        probabilities = torch.softmax(forward(adapted, xq)[0].detach(), -1)
        for label in range(outputs):
            total[:, label] += probabilities[:, numbering[label]]
        count += 1
    return total / count
