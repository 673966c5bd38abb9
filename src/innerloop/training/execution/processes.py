"""Mapping a function over tasks in worker processes, which share memory and no interpreter lock."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from innerloop.core.errors import UserError
from innerloop.core.types import Batch, Buffers, Params, Task
from innerloop.training.execution.arena import ALIGNED, Place, placed, placed_tree
from innerloop.training.execution.crew import Crew
from innerloop.training.execution.sending import WorkersError
from innerloop.training.execution.worker import Answer, Job, Sent, Setting, received

LOSS_BYTES = 4096  # for the small tensors beside gradients and buffers


class Processes:
    """``function`` over the tasks of a batch, in worker processes that live as long as this object.

    Parameters and tasks are copied to shared memory, and what comes out is written there by the workers. The
    function itself is sent once, when they start: it must not depend on what changes afterwards. Tensors of
    the results are views of that memory, good until the next call.

    >>> from innerloop.core import stack_tasks
    >>> one = Task(*(torch.ones(2, 1) for _ in range(4)), torch.tensor(0))
    >>> total = Processes(lambda p, b, task: task.x_query.sum(), 2)
    >>> total({}, {}, stack_tasks([one, one]))
    [tensor(2.), tensor(2.)]
    """

    def __init__(self, function: Callable[..., Any], count: int, weights: bool = False) -> None:
        self.crew, self.weights = Crew(function, count), weights
        self._ending = weakref.finalize(self, self.crew.abandon)

    def __call__(self, params: Params, buffers: Buffers, batch: Batch) -> list[Any]:
        """The results, in the order of the tasks."""
        tasks = batch.tasks()
        setting, jobs, size = self._layout(params, buffers, tasks)
        arena = self.crew.arena(size, len(tasks))
        for tree, places in ((params, setting.params), (buffers, setting.buffers)):
            for name, place in places.items():
                arena.put(tree[name], place)
        for task, job in zip(tasks, jobs, strict=True):
            for field, place in zip(task, job.task, strict=True):
                arena.put(field, place)
        answers = self.crew.run(setting, jobs)
        for answer in answers:
            if answer.error is not None:
                raise _error(answer)
        return [
            pytree.tree_map(lambda leaf: received(leaf, arena) if _is_tensor(leaf) else leaf, answer.result)
            for answer in answers
        ]

    def close(self) -> None:
        """Ends the workers, and waits until they have ended."""
        self._ending.detach()
        self.crew.stop()

    def start(self, params: Params, buffers: Buffers, batch: Batch) -> None:
        """Starts the workers for batches of this size, which a first call would else do."""
        self.crew.arena(self._layout(params, buffers, batch.tasks())[2], batch.size)

    def _layout(self, params: Params, buffers: Buffers, tasks: list[Task]) -> tuple[Setting, list[Job], int]:
        """Where everything goes, and how many bytes that takes."""
        _refuse([*params.values(), *buffers.values(), *(field for task in tasks for field in task)])
        at, end = placed_tree(params, 0)
        stored, end = placed_tree(buffers, end)
        room = 0
        if self.weights:
            room = LOSS_BYTES + 2 * ALIGNED * (len(at) + len(stored)) + end
        jobs = []
        for number, task in enumerate(tasks):
            fields: list[Place] = []
            for field in task:
                fields.append(placed(field, end))
                end = fields[-1].end
            jobs.append(Job(number, tuple(fields), (end, end + room)))
            end += room
        return Setting(at, stored, torch.is_grad_enabled()), jobs, end


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, Place | Sent)


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
