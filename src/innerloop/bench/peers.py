"""Other libraries' MAML on the same problems, written as their documentation does it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from innerloop.bench.problems import Problem, conv_problem, sine_problem
from innerloop.core.types import Params

LIBRARIES = ("higher", "torchopt")


def installed() -> list[str]:
    """The peers that are here (extra ``peers``)."""
    return [name for name in LIBRARIES if importlib.util.find_spec(name) is not None]


class Mlp(nn.Module):
    """MLP 1-40-40-1, with parameters named as in our problem."""

    def __init__(self) -> None:
        super().__init__()
        self.layer0, self.layer1, self.layer2 = nn.Linear(1, 40), nn.Linear(40, 40), nn.Linear(40, 1)

    def forward(self, x: Tensor) -> Tensor:
        """The outputs."""
        return self.layer2(F.relu(self.layer1(F.relu(self.layer0(x)))))


class Conv4(nn.Module):
    """Conv4 with strides, with parameters named as in our problem."""

    def __init__(self, filters: int = 64) -> None:
        super().__init__()
        for i in range(4):
            setattr(self, f"conv{i}", nn.Conv2d(1 if i == 0 else filters, filters, 3, stride=2, padding=1))
            setattr(self, f"norm{i}", nn.BatchNorm2d(filters, track_running_stats=False))
        self.head = nn.Linear(4 * filters, 5)

    def forward(self, x: Tensor) -> Tensor:
        """The outputs."""
        for i in range(4):
            x = F.relu(getattr(self, f"norm{i}")(getattr(self, f"conv{i}")(x)))
        return self.head(x.flatten(1))


def _higher(
    problem: Problem, module: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[], Params]:
    import higher

    module.load_state_dict(problem.params, strict=True)
    optimiser = torch.optim.SGD(module.parameters(), lr=problem.lr)
    tasks = problem.batch.tasks()

    def step() -> Params:
        module.zero_grad()
        for task in tasks:
            with higher.innerloop_ctx(module, optimiser, copy_initial_weights=False) as (fast, inner):
                for _ in range(problem.steps):
                    inner.step(loss(fast(task.x_support), task.y_support))
                (loss(fast(task.x_query), task.y_query) / len(tasks)).backward()
        return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}

    return step


def _torchopt(
    problem: Problem, module: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[], Params]:
    import torchopt

    module.load_state_dict(problem.params, strict=True)
    inner = torchopt.MetaSGD(module, lr=problem.lr)
    tasks = problem.batch.tasks()
    start = torchopt.extract_state_dict(module, by="reference", detach_buffers=True)
    inner_start = torchopt.extract_state_dict(inner, by="reference")
    leaves = dict(module.named_parameters())

    def step() -> Params:
        for leaf in leaves.values():
            leaf.grad = None
        for task in tasks:
            for _ in range(problem.steps):
                inner.step(loss(module(task.x_support), task.y_support))
            (loss(module(task.x_query), task.y_query) / len(tasks)).backward()
            torchopt.recover_state_dict(module, start)
            torchopt.recover_state_dict(inner, inner_start)
        return {name: p.grad.clone() for name, p in leaves.items() if p.grad is not None}

    return step


_MAKERS = {"higher": _higher, "torchopt": _torchopt}


def sine(threads: int, steps: int, library: str) -> Callable[[], Params]:
    """Sinusoids."""
    del threads
    return _MAKERS[library](sine_problem(steps), Mlp(), F.mse_loss)


def conv(threads: int, steps: int, library: str, **options: Any) -> Callable[[], Params]:
    """Conv4."""
    del threads
    return _MAKERS[library](conv_problem(steps, **options), Conv4(), F.cross_entropy)
