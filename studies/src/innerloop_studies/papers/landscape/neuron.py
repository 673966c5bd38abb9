"""Losses of a single neuron on a grid of weights, before and after one step: Landscape's Figures 4 to 6."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

F64 = torch.float64
# an activation and its derivative
ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "softplus": (F.softplus, torch.sigmoid),
    "sigmoid": (torch.sigmoid, lambda z: torch.sigmoid(z) * torch.sigmoid(-z)),
}


class NeuronTask(NamedTuple):
    """A task with one true neuron: its weights, the variance of its inputs, and whether it counts as hard."""

    weight: tuple[float, float]
    variance: float

    @property
    def kind(self) -> str:
        """``hard`` where the inputs vary less than those of the standard task."""
        return "hard" if self.variance < 1 else "easy"


def inputs(task: NeuronTask, n: int, generator: torch.Generator) -> Tensor:
    """``(n, 2)`` Gaussian inputs."""
    return task.variance**0.5 * torch.randn(n, 2, generator=generator, dtype=F64)


def loss(w: Tensor, x: Tensor, task: NeuronTask, activation: str) -> Tensor:
    """Half the mean squared error of every weight ``(G, 2)`` on these inputs, ``(G,)``."""
    act, _ = ACTIVATIONS[activation]
    truth = act(x @ torch.tensor(task.weight, dtype=F64))
    return 0.5 * (act(w @ x.T) - truth).square().mean(-1)


def step(w: Tensor, x: Tensor, task: NeuronTask, activation: str, lr: float) -> Tensor:
    """Every weight after one gradient step on these inputs."""
    act, slope = ACTIVATIONS[activation]
    z = w @ x.T
    truth = act(x @ torch.tensor(task.weight, dtype=F64))
    return w - lr * ((act(z) - truth) * slope(z)) @ x / len(x)


def nal_loss(w: Tensor, tasks: Sequence[NeuronTask], activation: str, n: int, seed: int) -> Tensor:
    """Eq. 3 on ``n`` samples per task, averaged over the tasks."""
    g = torch.Generator().manual_seed(seed)
    return torch.stack([loss(w, inputs(t, n, g), t, activation) for t in tasks]).mean(0)


def maml_loss(
    w: Tensor, tasks: Sequence[NeuronTask], activation: str, lr: float, shots: tuple[int, int, int], seed: int
) -> Tensor:
    """Eq. 4 with ``shots = (n₂, n₁, τ)``: inner and outer samples of each of τ episodes per task."""
    inner, outer, episodes = shots
    g = torch.Generator().manual_seed(seed)
    total = torch.zeros(len(w), dtype=F64)
    for task in tasks:
        for _ in range(episodes):
            moved = step(w, inputs(task, inner, g), task, activation, lr)
            total += loss(moved, inputs(task, outer, g), task, activation)
    return total / (len(tasks) * episodes)


def grid(low: float, high: float, points: int) -> tuple[list[float], Tensor]:
    """The axis, and all its pairs ``(points², 2)``, row by row."""
    axis = torch.linspace(low, high, points, dtype=F64)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    return axis.tolist(), torch.stack([x.flatten(), y.flatten()], -1)
