"""Small trainings whose course is known, and what they keep."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from innerloop.core.losses import get_loss
from innerloop.core.statistics import Interval
from innerloop.core.types import Task
from innerloop.learners import Objective, episodic, maml
from innerloop.nets import mlp
from innerloop.tasks import Sampler, get_family, make_sampler
from innerloop.training import TrainState, initial_state
from innerloop.training.loop import Validation
from oracles import problems

Tree = dict[str, Tensor]


def sines(**options: Any) -> Sampler:
    defaults: dict[str, Any] = {"seed": 0, "shots": 5, "queries": 5, "dtype": torch.float64}
    return make_sampler(get_family("sine"), **{**defaults, **options})


def problem(steps: int = 1, lr: float = 0.01) -> tuple[Objective, TrainState]:
    network, loss = mlp(1, [6], 1, activation="tanh"), get_loss("mse")
    params, buffers = problems.drawn(network)
    return episodic(maml(network, loss, lr, steps), loss), initial_state(params, buffers)


def quadratic(shift: float = 0.0) -> tuple[Objective, TrainState]:
    """Loss ½(w − 1)², whatever the task: cheap, and every number can be known."""

    def value(params: Tree, buffers: Tree, task: Task) -> tuple[Tensor, Tree]:
        return 0.5 * (params["w"] - 1 - shift).square().sum() + 0 * task.x_query.sum(), buffers

    return Objective("quadratic", loss=value), initial_state({"w": torch.zeros(1, dtype=torch.float64)}, {})


class Kept:
    """Collects what fit saves and logs."""

    def __init__(self) -> None:
        self.saved: list[tuple[int, tuple[str, ...], TrainState]] = []
        self.records: list[dict[str, Any]] = []

    def save(self, state: TrainState, tags: tuple[str, ...]) -> None:
        self.saved.append((state.step, tags, state))

    def steps(self, tag: str) -> list[int]:
        return [step for step, tags, _ in self.saved if tag in tags]


def judged(scores: list[float], **options: Any) -> Validation:
    """A validation whose scores are given in advance."""
    stream = iter(scores)
    return Validation(lambda params, buffers: Interval(next(stream), 0.1, 9), **{"every": 1, **options})
