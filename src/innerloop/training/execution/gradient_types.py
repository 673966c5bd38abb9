"""What a meta-gradient is computed from, and what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from torch import Tensor

from innerloop.core.types import Batch, Buffers, Params, Task

TaskLoss: TypeAlias = Callable[[Params, Buffers, Task], tuple[Tensor, Buffers]]
TaskDirection: TypeAlias = Callable[[Params, Buffers, Task], tuple[Params, Tensor, Buffers]]


class Gradient(NamedTuple):
    """What one meta-batch says.

    Attributes:
        losses: one per task.
        grads: the gradient of their mean, or of their weighted sum.
        buffers: averaged over tasks.
    """

    losses: Tensor
    grads: Params
    buffers: Buffers


class MetaGradient(Protocol):
    """``(params, buffers, batch) -> Gradient``; ``weights``, one per task, add up to one."""

    def __call__(
        self, params: Params, buffers: Buffers, batch: Batch, weights: Tensor | None = None
    ) -> Gradient:
        """The gradient on these tasks."""
