"""The few types that every layer shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

Params: TypeAlias = dict[str, Tensor]
"""Trainable tensors by name. Pure functions take one and return a new one."""

Buffers: TypeAlias = dict[str, Tensor]
"""Tensors that are carried but not trained by gradients, such as running statistics."""

Statistics: TypeAlias = Literal["batch", "stored"]
"""Where a normalisation layer takes mean and variance from in one forward pass."""


class Task(NamedTuple):
    """One episode: learn from the support set, be judged on the query set.

    Attributes:
        x_support: inputs to adapt to, one row per sample.
        y_support: their targets (float rows for regression, int64 labels for classification).
        x_query: inputs to predict.
        y_query: their targets.
        id: int64; which task this is (regression: a scalar; classification: the global class behind
            each local label). Multi-task heads are found by it.
    """

    x_support: Tensor
    y_support: Tensor
    x_query: Tensor
    y_query: Tensor
    id: Tensor


def all_samples(task: Task) -> tuple[Tensor, Tensor]:
    """Support and query together, support first."""
    x = torch.cat([task.x_support, task.x_query])
    return x, torch.cat([task.y_support, task.y_query])


class TaskBatch(NamedTuple):
    """Tasks of equal shape, stacked: every field of :class:`Task` with a leading task axis."""

    x_support: Tensor
    y_support: Tensor
    x_query: Tensor
    y_query: Tensor
    id: Tensor

    @property
    def size(self) -> int:
        """How many tasks there are (``len()`` would count the fields)."""
        return self.x_support.shape[0]

    def task(self, i: int) -> Task:
        """The ``i``-th task, as views into the batch."""
        return Task(*(field[i] for field in self))

    def tasks(self) -> list[Task]:
        """All tasks, in order."""
        return [self.task(i) for i in range(self.size)]

    def slice(self, start: int, stop: int) -> TaskBatch:
        """Tasks ``start`` to ``stop``, as views."""
        return TaskBatch(*(field[start:stop] for field in self))

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> TaskBatch:
        """Moved to a device; ``dtype`` applies to floating point fields only."""
        return TaskBatch(*(f.to(device=device, dtype=dtype if f.is_floating_point() else None) for f in self))


class RaggedBatch(NamedTuple):
    """Tasks of unequal shapes (mixtures of ways and shots), in order; used like a :class:`TaskBatch`."""

    items: tuple[Task, ...]

    @property
    def size(self) -> int:
        """How many tasks there are."""
        return len(self.items)

    def task(self, i: int) -> Task:
        """The ``i``-th task."""
        return self.items[i]

    def tasks(self) -> list[Task]:
        """All tasks, in order."""
        return list(self.items)

    def slice(self, start: int, stop: int) -> RaggedBatch:
        """Tasks ``start`` to ``stop``."""
        return RaggedBatch(self.items[start:stop])

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> RaggedBatch:
        """Moved to a device; ``dtype`` applies to floating point fields only."""
        whole = [stack_tasks([task]).to(device, dtype).task(0) for task in self.items]
        return RaggedBatch(tuple(whole))

    def groups(self) -> list[tuple[list[int], TaskBatch]]:
        """Tasks of equal shape stacked, each group with the places of its tasks."""
        places: dict[tuple[torch.Size, ...], list[int]] = {}
        for i, task in enumerate(self.items):
            places.setdefault(tuple(field.shape for field in task), []).append(i)
        return [(mine, stack_tasks([self.items[i] for i in mine])) for mine in places.values()]


Batch: TypeAlias = TaskBatch | RaggedBatch
"""What samplers give and executors take."""


def stack_tasks(tasks: list[Task]) -> TaskBatch:
    """Stacks tasks of equal shape.

    >>> one = Task(*(torch.zeros(2, 1) for _ in range(4)), torch.tensor(7))
    >>> stack_tasks([one, one]).x_query.shape
    torch.Size([2, 2, 1])
    """
    return TaskBatch(*(torch.stack(fields) for fields in zip(*tasks, strict=True)))


class Loss(NamedTuple):
    """A loss with its convention spelled out: a learning rate means nothing without one.

    Attributes:
        name: how recipes call it.
        convention: the formula, for people.
        value: ``(outputs, targets) -> scalar``.
    """

    name: str
    convention: str
    value: Callable[[Tensor, Tensor], Tensor]
