"""Mapping a function over the tasks of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from innerloop.core.autodiff import plain_autograd
from innerloop.core.threads import map_in_threads
from innerloop.core.types import Batch, Buffers, Params, Task, TaskBatch
from innerloop.training.execution.plan import Plan
from innerloop.training.execution.processes import Processes

Out = TypeVar("Out")
TaskFunction = Callable[[Params, Buffers, Task], Out]
"""``(params, buffers, task) -> tensors`` (a tensor, or tuples and dicts of them)."""


def map_tasks(fn: TaskFunction[Any], plan: Plan) -> Callable[[Params, Buffers, Batch], Any]:
    """``fn`` over every task of a batch; the results stacked along a new first axis, in task order.

    All modes agree. For training use :func:`innerloop.training.execution.gradients.meta_gradient`.

    >>> from innerloop.core import stack_tasks
    >>> one = Task(*(torch.ones(2, 1) for _ in range(4)), torch.tensor(0))
    >>> total = map_tasks(lambda p, b, task: task.x_query.sum(), Plan("vmap"))
    >>> total({}, {}, stack_tasks([one, one]))
    tensor([2., 2.])
    """
    if plan.mode == "vmap":
        return _vmapped(fn, plan.chunk)
    if plan.mode == "processes":
        return in_processes(fn, plan)

    def mapped(params: Params, buffers: Buffers, batch: Batch) -> Any:
        """``fn`` on every task of a batch, one after another or one per thread."""

        def one(task: Task) -> Any:
            """``fn`` on one task."""
            with plain_autograd():
                return fn(params, buffers, task)

        if plan.mode == "threads":
            return stack_results(map_in_threads(one, batch.tasks(), plan.threads))
        return stack_results([one(task) for task in batch.tasks()])

    return mapped


def in_processes(
    fn: TaskFunction[Any], plan: Plan, weights: bool = False
) -> Callable[[Params, Buffers, Batch], Any]:
    """:func:`map_tasks` in worker processes, which end with the returned function; ``weights`` as there."""

    def one(params: Params, buffers: Buffers, task: Task) -> Any:
        """``fn`` on one task, as it runs in a worker."""
        with plain_autograd():
            return fn(params, buffers, task)

    results = Processes(one, plan.threads, weights)
    return lambda params, buffers, batch: stack_results(results(params, buffers, batch))


def _vmapped(fn: TaskFunction[Any], chunk: int | None) -> Callable[[Params, Buffers, Batch], Any]:
    def mapped(params: Params, buffers: Buffers, batch: Batch) -> Any:
        """``fn`` on all tasks of a batch at once; tasks of different shapes are grouped."""

        def one(*fields: Tensor) -> Any:
            """``fn`` on one task, given by its fields, as ``vmap`` needs it."""
            return fn(params, buffers, Task(*fields))

        if isinstance(batch, TaskBatch):
            return torch.func.vmap(one, chunk_size=chunk)(*batch)
        return _in_order([(places, mapped(params, buffers, group)) for places, group in batch.groups()])

    return mapped


def _in_order(parts: list[tuple[list[int], Any]]) -> Any:
    """Results of groups of tasks, put back in the order of the tasks."""
    order = torch.tensor([i for places, _ in parts for i in places]).argsort()
    return pytree.tree_map(
        lambda *leaves: torch.cat(leaves)[order.to(leaves[0].device)], *(r for _, r in parts)
    )


def stack_results(results: list[Any]) -> Any:
    """Equal-shaped results (tensors in tuples and dicts), stacked."""
    flat, spec = zip(*(pytree.tree_flatten(r) for r in results), strict=True)
    return pytree.tree_unflatten([torch.stack(leaves) for leaves in zip(*flat, strict=True)], spec[0])
