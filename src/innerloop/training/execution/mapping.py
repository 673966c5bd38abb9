"""Mapping a function over the tasks of a batch: in this process, or in workers that share its memory."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from innerloop.core.autodiff import plain_autograd
from innerloop.core.errors import UserError
from innerloop.core.threads import map_in_threads
from innerloop.core.types import Batch, Buffers, Params, Task, TaskBatch
from innerloop.training.execution.plan import Plan
from innerloop.training.execution.shared_memory import ALIGNED, TensorLayout, layout_of, layouts_of
from innerloop.training.execution.worker import (
    Answer,
    SharedInputs,
    TaskMessage,
    TensorMessage,
    WorkersError,
    receive,
)
from innerloop.training.execution.worker_pool import WorkerPool

LOSS_BYTES = 4096  # for the small tensors beside gradients and buffers
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

    results = ProcessMap(one, plan.threads, weights)
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


class ProcessMap:
    """``function`` over the tasks of a batch, in worker processes that live as long as this object.

    Parameters and tasks are copied to shared memory, and what comes out is written there by the workers. The
    function itself is sent once, when they start: it must not depend on what changes afterwards. Tensors of
    the results are views of that memory, good until the next call.

    >>> from innerloop.core import stack_tasks
    >>> one = Task(*(torch.ones(2, 1) for _ in range(4)), torch.tensor(0))
    >>> total = ProcessMap(lambda p, b, task: task.x_query.sum(), 2)
    >>> total({}, {}, stack_tasks([one, one]))
    [tensor(2.), tensor(2.)]
    """

    def __init__(self, function: Callable[..., Any], count: int, weights: bool = False) -> None:
        self.pool, self.weights = WorkerPool(function, count), weights
        self._ending = weakref.finalize(self, self.pool.abandon)

    def __call__(self, params: Params, buffers: Buffers, batch: Batch) -> list[Any]:
        """The results, in the order of the tasks."""
        tasks = batch.tasks()
        setting, jobs, size = self._layout(params, buffers, tasks)
        arena = self.pool.arena(size, len(tasks))
        for tree, places in ((params, setting.params), (buffers, setting.buffers)):
            for name, place in places.items():
                arena.put(tree[name], place)
        for task, job in zip(tasks, jobs, strict=True):
            for field, place in zip(task, job.task, strict=True):
                arena.put(field, place)
        answers = self.pool.run(setting, jobs)
        for answer in answers:
            if answer.error is not None:
                raise _error(answer)
        return [
            pytree.tree_map(lambda leaf: receive(leaf, arena) if _is_tensor(leaf) else leaf, answer.result)
            for answer in answers
        ]

    def close(self) -> None:
        """Ends the workers, and waits until they have ended."""
        self._ending.detach()
        self.pool.stop()

    def start(self, params: Params, buffers: Buffers, batch: Batch) -> None:
        """Starts the workers for batches of this size, which a first call would else do."""
        self.pool.arena(self._layout(params, buffers, batch.tasks())[2], batch.size)

    def _layout(
        self, params: Params, buffers: Buffers, tasks: list[Task]
    ) -> tuple[SharedInputs, list[TaskMessage], int]:
        """Where everything goes, and how many bytes that takes."""
        _refuse([*params.values(), *buffers.values(), *(field for task in tasks for field in task)])
        at, end = layouts_of(params, 0)
        stored, end = layouts_of(buffers, end)
        room = 0
        if self.weights:
            room = LOSS_BYTES + 2 * ALIGNED * (len(at) + len(stored)) + end
        jobs = []
        for number, task in enumerate(tasks):
            fields: list[TensorLayout] = []
            for field in task:
                fields.append(layout_of(field, end))
                end = fields[-1].end
            jobs.append(TaskMessage(number, tuple(fields), (end, end + room)))
            end += room
        return SharedInputs(at, stored, torch.is_grad_enabled()), jobs, end


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, TensorLayout | TensorMessage)


def _refuse(tensors: Iterable[Tensor]) -> None:
    """What cannot go through shared memory, or would come back without its graph."""
    for tensor in tensors:
        if tensor.device.type != "cpu":
            raise WorkersError(
                f"{{execution}}=processes shares the processor's memory, and these tensors are on "
                f"{tensor.device}: set {{execution}}=loop.",
                names=("execution",),
            )
        if tensor.requires_grad and torch.is_grad_enabled():
            raise UserError(
                "{execution}=processes gives results without their graph: call it under torch.no_grad(), "
                "or set {execution}=threads.",
                names=("execution",),
            )


def _error(answer: Answer) -> Exception:
    """The error of a task as it was, with what the worker saw as a note."""
    assert answer.error is not None
    error: Exception = pickle.loads(answer.error)
    if not isinstance(error, UserError):  # a sentence for people needs no traceback
        error.add_note(f"In a worker process, at task {answer.number} of the batch:\n{answer.trace}")
    return error
