"""What the reproductions of Bridge's and MetaNTK's theory share: their tasks, and means over draws."""

from __future__ import annotations

import torch

from innerloop.core.random import derive_seed
from innerloop.core.types import TaskBatch
from innerloop.tasks.families import bridge_quadratic
from innerloop.tasks.sampler import make_sampler

DIM, TASKS, SHOTS, TEST_TASKS, TEST_SUPPORT, TEST_QUERY = 10, 20, 10, 20, 5, 10
"""Bridge §5.1."""


def bridge_tasks(
    seed: int, split: str, n: int, shots: int, queries: int, *, standard: bool = False, sphere: bool = True
) -> TaskBatch:
    """Quadratic tasks in float64; ``standard`` centres labels and gives them variance 1."""
    batch = make_sampler(
        bridge_quadratic,
        seed=derive_seed(seed, "bridge"),
        split=split,
        shots=shots,
        queries=queries,
        dtype=torch.float64,
        settings={"dim": DIM, "scale": "sphere" if sphere else "none"},
    ).episodes(range(n))
    assert isinstance(batch, TaskBatch)
    if not standard:
        return batch
    # constants of the family, not of the draw: E y = ν³d and its spread at ν = 1.45
    mean, scale = 1.45**3 * DIM, 1.45**3 * (2 * DIM) ** 0.5
    return batch._replace(y_support=(batch.y_support - mean) / scale, y_query=(batch.y_query - mean) / scale)


def figure_1_tasks(seed: int, *, sphere: bool = True) -> tuple[TaskBatch, TaskBatch]:
    """One draw of Bridge's synthetic experiment: 20 training and 20 test tasks; ``sphere``: ‖x‖ = √d."""
    train = bridge_tasks(seed, "train", TASKS, SHOTS, 0, sphere=sphere)
    return train, bridge_tasks(seed, "test", TEST_TASKS, TEST_SUPPORT, TEST_QUERY, sphere=sphere)


def halves(tasks: TaskBatch) -> TaskBatch:
    """The same samples, the second half of every task as its query set."""
    half = tasks.x_support.shape[1] // 2
    return tasks._replace(
        x_support=tasks.x_support[:, :half],
        y_support=tasks.y_support[:, :half],
        x_query=tasks.x_support[:, half:],
        y_query=tasks.y_support[:, half:],
    )


def with_support(tasks: TaskBatch, seed: int, *, sphere: bool = True) -> TaskBatch:
    """The samples of every task as its query set, and as many new ones of the same task as its support."""
    n = tasks.x_support.shape[1]
    # the same tasks: μ and ν do not depend on the counts
    more = bridge_tasks(seed, "train", tasks.size, n, n, sphere=sphere)
    return tasks._replace(
        x_support=more.x_query, y_support=more.y_query, x_query=tasks.x_support, y_query=tasks.y_support
    )
