"""What an objective is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from innerloop.core.types import Buffers, Params, Task

TaskLoss: TypeAlias = Callable[[Params, Buffers, Task], tuple[Tensor, Buffers]]
"""``(params, buffers, task) -> (loss, buffers)`` of one task."""

TaskDirection: TypeAlias = Callable[[Params, Buffers, Task], tuple[Params, Tensor, Buffers]]
"""``(params, buffers, task) -> (pseudo-gradient, loss, buffers)`` of one task."""


def same_params(params: Params, generator: torch.Generator) -> Params:
    """The ``init`` of objectives that own no parameters."""
    del generator
    return dict(params)


class Objective(NamedTuple):
    """One task's contribution; training averages it over a meta-batch.

    Attributes:
        name: what reports call it.
        loss: of one task, differentiated by training. ``None`` if there is a ``direction``.
        direction: for objectives that are no gradient (Reptile): the pseudo-gradient of one task.
        init: ``(params, generator) -> params``: adds what the objective owns, such as task heads.
        untrained: names that are carried along and never updated, not by weight decay either.
    """

    name: str
    loss: TaskLoss | None = None
    direction: TaskDirection | None = None
    init: Callable[[Params, torch.Generator], Params] = same_params
    untrained: tuple[str, ...] = ()
