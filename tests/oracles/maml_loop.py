"""The MAML family as an explicit loop over steps and tasks with ``torch.autograd.grad``.

Written from the papers, not from ``src``: one function, no vmap, no torch.func, no sharing of work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from oracles.forward import Forward

Tree = dict[str, Tensor]
TensorLoss = Callable[[Tensor, Tensor], Tensor]


class Inner(NamedTuple):
    """What the inner loop does: which names move, how many steps of which rule, through which of them."""

    lr: float
    steps: int
    moves: Callable[[str], bool] = lambda name: True
    rule: str = "sgd"
    first_order: bool = False
    truncate: int | None = None
    rates: str = "fixed"  # "per-weight": rates[name]; "per-step": rates[name][t]


def adapt(forward: Forward, loss: TensorLoss, params: Tree, inner: Inner, x: Tensor, y: Tensor) -> Tree:
    """The parameters after the inner steps, connected to ``params`` as the method says."""
    own = {name: p for name, p in params.items() if not name.startswith("inner_lr.")}
    through = 0 if inner.first_order else inner.steps if inner.truncate is None else inner.truncate
    names = [name for name in own if inner.moves(name)]
    first = {name: torch.zeros_like(own[name]) for name in names}
    second = {name: torch.zeros_like(own[name]) for name in names}
    for t in range(inner.steps):
        constant = t < inner.steps - through
        grads = torch.autograd.grad(loss(forward(own, x)[0], y), [own[n] for n in names], create_graph=True)
        moved = dict(own)
        for name, g in zip(names, grads, strict=True):
            g = g.detach() if constant else g
            if inner.rule == "momentum":
                g = first[name] = 0.9 * first[name] + g
            elif inner.rule == "adam":
                first[name] = 0.9 * first[name] + 0.1 * g
                second[name] = 0.999 * second[name] + 0.001 * g**2
                mean, var = first[name] / (1 - 0.9 ** (t + 1)), second[name] / (1 - 0.999 ** (t + 1))
                g = mean / (torch.sqrt(var) + 1e-8)
            rate: float | Tensor = inner.lr
            if inner.rates == "per-weight":
                rate = params["inner_lr." + name]
            elif inner.rates == "per-step":
                rate = params["inner_lr." + name][t]
            moved[name] = own[name] - rate * g
        own = moved
    return own


def task_loss(
    forward: Forward,
    loss: TensorLoss,
    params: Tree,
    inner: Inner,
    task: tuple[Tensor, ...],
    norm: str = "none",
    split: bool = True,
) -> Tensor:
    """The query loss after adaptation; without split everything happens on all samples."""
    xs, ys, xq, yq = task[:4]
    if not split:
        xs, ys = torch.cat([xs, xq]), torch.cat([ys, yq])
        xq, yq = xs, ys
    adapted = adapt(forward, loss, params, inner, xs, ys)
    stats = None
    if norm == "support":
        # head-only learners adapt to features of the body as it was; its statistics are the same
        stats = forward(adapted, xs)[1]
    return loss(forward(adapted, xq, stats)[0], yq)


def meta_gradient(one_task: Callable[[Tree, tuple[Tensor, ...]], Tensor], params: Tree, tasks: list) -> tuple:
    """Losses of the tasks, and the gradient of their mean, task by task."""
    leaves = {name: p.detach().clone().requires_grad_() for name, p in params.items()}
    losses = [one_task(leaves, task) for task in tasks]
    grads = torch.autograd.grad(
        torch.stack(losses).mean(), list(leaves.values()), allow_unused=True, materialize_grads=True
    )
    return torch.stack(losses).detach(), dict(zip(leaves, grads, strict=True))
