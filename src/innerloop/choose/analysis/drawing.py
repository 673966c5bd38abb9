"""Tasks of a family, drawn in float64 for the analyses of kernels."""

from __future__ import annotations

from typing import Any, Protocol, cast

import torch

from innerloop.core.types import TaskBatch
from innerloop.tasks.families import get_family, on_sphere
from innerloop.tasks.sampler import make_sampler


class _Described(Protocol):
    """Settings that describe a family of tasks."""

    @property
    def tasks(self) -> str: ...
    @property
    def dim(self) -> int | None: ...
    @property
    def scale(self) -> str: ...


def draw_tasks(
    described: _Described, n: int, shots: int, queries: int, *, seed: int, split: str = "train"
) -> TaskBatch:
    """The first ``n`` tasks of a family, with inputs on the sphere ‖x‖ = √d where ``scale`` says so."""
    options: dict[str, Any] = {} if described.dim is None else {"dim": described.dim}
    sampler = make_sampler(
        get_family(described.tasks),
        seed=seed,
        split=split,
        shots=shots,
        queries=queries,
        dtype=torch.float64,
        settings=options,
    )
    batch = cast(TaskBatch, sampler.episodes(range(n)))  # of a family all tasks have one shape
    if described.scale == "sphere":
        batch = batch._replace(x_support=on_sphere(batch.x_support), x_query=on_sphere(batch.x_query))
    return batch


def scaled_labels(batch: TaskBatch, std: float) -> TaskBatch:
    """Labels centred over all tasks together, and scaled to a standard deviation."""
    labels = torch.cat([batch.y_support.flatten(), batch.y_query.flatten()])
    mean, scale = labels.mean(), std / labels.std()
    y_support, y_query = ((y - mean) * scale for y in (batch.y_support, batch.y_query))
    return batch._replace(y_support=y_support, y_query=y_query)
