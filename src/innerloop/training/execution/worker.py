"""A worker process: waits for tasks, runs them on one thread, writes what comes out to shared memory."""

from __future__ import annotations

import io
import os
import pickle
import signal
import threading
import traceback
from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from innerloop.core.errors import UserError
from innerloop.core.resources import keep_freed_memory
from innerloop.core.threads import forget_pools
from innerloop.core.types import Task
from innerloop.training.execution.shared_memory import Arena, TensorLayout, layout_of


class WorkersError(UserError):
    """Worker processes cannot be started here, or died and died again."""


class FunctionMessage:
    """A function on its way to another process: by value, closures included, unless it is forked."""

    def __init__(self, function: Callable[..., Any], method: str) -> None:
        self._function: Callable[..., Any] | None = function
        self._bytes = b"" if method == "fork" else _dumped(function)

    def __getstate__(self) -> bytes:
        return self._bytes

    def __setstate__(self, state: bytes) -> None:
        self._function, self._bytes = None, state

    def opened(self) -> Callable[..., Any]:
        """The function, in the process that has it now."""
        function: Callable[..., Any] = self._function or pickle.loads(self._bytes)
        return function


class SharedInputs(NamedTuple):
    """What is the same for all tasks of a call."""

    params: dict[str, TensorLayout]
    buffers: dict[str, TensorLayout]
    grad: bool


class TaskMessage(NamedTuple):
    """One task."""

    number: int
    task: tuple[TensorLayout, ...]
    slot: tuple[int, int]


@dataclass(frozen=True, slots=True)
class TensorMessage:
    """A tensor without room in its slot, sent with the answer. No tuple, as :class:`TensorLayout`."""

    place: TensorLayout
    content: bytes


class Answer(NamedTuple):
    """What became of a task: a tree of places, or an error with the text of its traceback."""

    number: int
    result: Any = None
    error: bytes | None = None
    trace: str = ""


class TorchSettings(NamedTuple):
    """What this process has in common with the one that started it."""

    default_dtype: torch.dtype
    matmul_precision: str


def serve(
    work: FunctionMessage,
    arena: Arena,
    connection: Connection,
    inherited: Sequence[Connection],
    ours: TorchSettings,
) -> None:
    """Runs what it is sent until it is told to end, or the other side is gone."""
    for other in inherited:
        other.close()
    _prepare(ours)
    function = work.opened()
    try:
        while True:
            message = connection.recv()
            if message is None:
                break
            setting, jobs = message
            params = {name: arena.at(place) for name, place in setting.params.items()}
            buffers = {name: arena.at(place) for name, place in setting.buffers.items()}
            for job in jobs:
                with torch.set_grad_enabled(setting.grad):
                    connection.send(_answer(function, params, buffers, job, arena))
    except (EOFError, OSError):  # the other side is gone
        pass
    os._exit(0)  # nothing of the process that was forked is ours to tidy up


def _prepare(ours: TorchSettings) -> None:
    """An interrupt is the business of the process that asks; one that is told to end ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    torch.set_default_dtype(ours.default_dtype)
    torch.set_float32_matmul_precision(ours.matmul_precision)
    forget_pools()
    keep_freed_memory()


def _answer(
    function: Callable[..., Any],
    params: dict[str, Tensor],
    buffers: dict[str, Tensor],
    job: TaskMessage,
    arena: Arena,
) -> Answer:
    try:
        task = Task(*(arena.at(place) for place in job.task))
        result = function(params, buffers, task)
        return Answer(job.number, _written(result, arena, job.slot))
    except Exception as error:
        return Answer(job.number, error=_pickled(error), trace=traceback.format_exc())


def _written(result: Any, arena: Arena, slot: tuple[int, int]) -> Any:
    """The same tree with the places of its tensors; those that find no room are sent."""
    start, end = slot

    def write(tensor: Tensor) -> TensorLayout | TensorMessage:
        """Puts a tensor into the slot, or wraps its bytes for the pipe if there is no room left."""
        nonlocal start
        tensor = tensor.detach()
        place = layout_of(tensor, start)
        if place.end <= end:
            arena.put(tensor, place)
            start = place.end
            return place
        flat = tensor.contiguous()
        content = flat.reshape(-1).view(torch.uint8).numpy().tobytes()
        return TensorMessage(TensorLayout(0, tuple(flat.shape), tuple(flat.stride()), flat.dtype), content)

    return pytree.tree_map_only(Tensor, write, result)


def _pickled(error: Exception) -> bytes:
    """The error itself if it survives the journey, else its name and words."""
    try:
        made = pickle.dumps(error)
        pickle.loads(made)
    except Exception:  # pickle raises whatever the error's own methods raise
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return made


def receive(leaf: TensorLayout | TensorMessage, arena: Arena) -> Tensor:
    """A tensor of an answer, on the side that asked; a view of shared memory where it lies there."""
    if isinstance(leaf, TensorLayout):
        return arena.at(leaf)
    if not leaf.content:
        return torch.empty(leaf.place.shape, dtype=leaf.place.dtype)
    flat = torch.frombuffer(bytearray(leaf.content), dtype=leaf.place.dtype)
    return flat.as_strided(leaf.place.shape, leaf.place.stride)


def _dumped(function: Callable[..., Any]) -> bytes:
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        dispatch_table: ClassVar[Any] = ChainMap(
            {type(threading.Lock()): _new_lock, threading.local: _new_local},
            cloudpickle.Pickler.dispatch_table,
        )

    file = io.BytesIO()
    try:
        Pickler(file).dump(function)
    except Exception as error:  # whatever the methods of what it holds raise
        raise WorkersError(
            f"these tasks cannot be sent to other processes ({error}): set {{execution}}=threads.",
            names=("execution",),
        ) from error
    return file.getvalue()


def _new_lock(_: Any) -> tuple[Any, tuple[()]]:
    return threading.Lock, ()


def _new_local(_: Any) -> tuple[Any, tuple[()]]:
    return threading.local, ()
