"""The headline peer: the fastest per-task loop we can write with plain autograd.

Parameters in a dict, ``torch.autograd.grad(create_graph=True)``, no module clones, no copies, no wasted
work; native layers (``F.batch_norm`` is right here: it is wrong only under ``vmap`` differentiated twice).
It knows nothing of the library but the names of the parameters.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.bench.problems import Problem, conv_problem, sine_problem
from innerloop.core.types import Params

Forward = Callable[[Params, Tensor], Tensor]


def mlp_forward(p: Params, x: Tensor) -> Tensor:
    """Three linear layers with ReLU between."""
    x = F.relu(F.linear(x, p["layer0.weight"], p["layer0.bias"]))
    x = F.relu(F.linear(x, p["layer1.weight"], p["layer1.bias"]))
    return F.linear(x, p["layer2.weight"], p["layer2.bias"])


def conv4_forward(p: Params, x: Tensor) -> Tensor:
    """Four strided convolutions with batch normalisation and ReLU, and a linear layer."""
    for i in range(4):
        x = F.conv2d(x, p[f"conv{i}.weight"], p[f"conv{i}.bias"], stride=2, padding=1)
        x = F.relu(F.batch_norm(x, None, None, p[f"norm{i}.weight"], p[f"norm{i}.bias"], training=True))
    return F.linear(x.flatten(1), p["head.weight"], p["head.bias"])


def meta_step(
    problem: Problem, forward: Forward, loss: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[], Params]:
    """A function that computes the mean meta-gradient over the tasks, one after the other."""
    names = list(problem.params)
    tasks = problem.batch.tasks()

    def step() -> Params:
        start = {name: value.detach().requires_grad_() for name, value in problem.params.items()}
        leaves = list(start.values())
        total: list[Tensor] = []
        for task in tasks:
            fast = start
            for _ in range(problem.steps):
                inner = loss(forward(fast, task.x_support), task.y_support)
                grads = torch.autograd.grad(inner, list(fast.values()), create_graph=True)
                fast = {n: p - problem.lr * g for (n, p), g in zip(fast.items(), grads, strict=True)}
            outer = loss(forward(fast, task.x_query), task.y_query)
            found = torch.autograd.grad(outer, leaves)
            if total:
                torch._foreach_add_(total, found)
            else:
                total = list(found)
        torch._foreach_div_(total, len(tasks))
        return dict(zip(names, total, strict=True))

    return step


def sine(threads: int, steps: int) -> Callable[[], Params]:
    """Sinusoids."""
    del threads  # set by the worker
    return meta_step(sine_problem(steps), mlp_forward, F.mse_loss)


def conv(threads: int, steps: int, tasks: int = 4) -> Callable[[], Params]:
    """Conv4."""
    del threads
    return meta_step(conv_problem(steps, tasks), conv4_forward, F.cross_entropy)
