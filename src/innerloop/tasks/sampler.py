"""Samplers: addressable streams of tasks."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from innerloop.core.arguments import checked
from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.random import Draws, derive_seed, hashed_uniform
from innerloop.core.types import Batch, Task, TaskBatch

Family: TypeAlias = Callable[..., TaskBatch]
"""``family(draws, shots, queries, **settings) -> TaskBatch``: all one writes to add a family of tasks."""


def _no_files(i: int) -> dict[str, Any]:
    """What samplers say whose tasks are not made of files."""
    del i
    return {}


class Sampler(NamedTuple):
    """A stream of tasks. The ``i``-th one never changes: not with the batch size, the rank, or a resume.

    Attributes:
        episodes: indices → those episodes, stacked.
        n_tasks: how many different tasks there are; ``None`` means no end of them.
        name: what reports call it.
        files: episode number → the names of the files behind it, where there are files.
        alone: episode number → that episode, where there is a quicker way to a single one.
        hard: indices → which of those episodes are hard, where the stream has hard ones.
    """

    episodes: Callable[[Sequence[int]], Batch]
    n_tasks: int | None = None
    name: str = ""
    files: Callable[[int], dict[str, Any]] = _no_files
    alone: Callable[[int], Task] | None = None
    hard: Callable[[Sequence[int]], NDArray[np.bool_]] | None = None

    def episode(self, i: int) -> Task:
        """The ``i``-th episode alone."""
        return self.episodes([i]).task(0) if self.alone is None else self.alone(i)

    def batch(self, step: int, size: int) -> Batch:
        """The episodes of the ``step``-th meta-batch: ``size·step`` and the ``size − 1`` that follow."""
        return self.episodes(range(step * size, (step + 1) * size))


def task_order(seed: int, n_tasks: int, index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Which of ``n_tasks`` tasks each episode shows: every pass over them in a new order."""
    epochs, places = np.divmod(index, n_tasks)
    out = np.empty_like(index)
    for epoch in np.unique(epochs):
        mine = epochs == epoch
        out[mine] = _order_of_pass(seed, n_tasks, int(epoch))[places[mine]]
    return out


@functools.lru_cache(maxsize=8)
def _order_of_pass(seed: int, n_tasks: int, epoch: int) -> NDArray[np.int64]:
    keys = hashed_uniform(derive_seed(seed, "order", epoch), np.arange(n_tasks), 1)[:, 0]
    return np.argsort(keys, kind="stable")


def check_settings(family: Family, settings: dict[str, Any]) -> None:
    """Refuses settings that the family does not take, with a suggestion."""
    parameters = _own_parameters(family)
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    known = list(parameters)
    unknown = [name for name in settings if name not in known]
    if unknown:
        takes = f"it takes {', '.join(known) or 'none'}"
        lines = [
            f"{{settings}}.{name} is not a setting of this family{did_you_mean(name, known)}: {takes}."
            for name in unknown
        ]
        raise UserError("\n".join(lines), names=("settings",))


def full_settings(family: Family, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a family with its defaults filled in: what a sampler of it depends on."""
    defaults = {
        name: parameter.default
        for name, parameter in _own_parameters(family).items()
        if parameter.default is not parameter.empty
    }
    return {**defaults, **settings}


def _own_parameters(family: Family) -> dict[str, inspect.Parameter]:
    """What the family takes besides random numbers, shots and queries."""
    parameters = inspect.signature(family).parameters
    return {name: p for name, p in parameters.items() if name not in ("draws", "shots", "queries")}


@checked
def make_sampler(
    family: Family | str,
    *,
    seed: int = 0,
    split: str = "train",
    shots: int = 10,
    queries: int = 10,
    n_tasks: int | None = None,
    resample: bool = True,
    noise: float = 0.0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    settings: dict[str, Any] | None = None,
    name: str = "",
) -> Sampler:
    """A sampler over a family of tasks.

    Args:
        family: a function of :class:`~innerloop.core.random.Draws`, shots and queries; or the name of a
            built-in one.
        seed: one seed; splits never share tasks.
        split: ``train``, ``validation``, ``test``, or any other word: each has its own stream.
        shots: support samples per task.
        queries: query samples per task.
        n_tasks: a finite number of tasks, visited in a new order each pass.
        resample: with ``n_tasks``, draw new samples at each visit; otherwise a task keeps its samples.
        noise: standard deviation of noise on all targets.
        dtype: floating point type of the tensors.
        device: where they are put.
        settings: keyword arguments of the family.
        name: what reports call it.

    >>> train = make_sampler("sine", seed=0, shots=5, queries=10)
    >>> bool((train.episode(17).x_query == train.batch(4, 4).task(1).x_query).all())
    True
    """
    settings = dict(settings or {})
    family = _family(family)
    check_settings(family, settings)
    stream = derive_seed(seed, "tasks", split)

    def episodes(indices: Sequence[int]) -> TaskBatch:
        """The episodes of these numbers, as one batch."""
        sample = np.asarray(indices, dtype=np.int64)
        task = sample if n_tasks is None else task_order(stream, n_tasks, sample)
        draws = Draws(stream, task, sample if resample else task, dtype=dtype)
        batch = family(draws, shots, queries, **settings)
        if not isinstance(batch, TaskBatch):
            raise UserError(f"the family {name} gave a {type(batch).__name__}: it must return a TaskBatch.")
        if noise > 0:
            batch = _add_noise(batch, draws, noise)
        return batch.to(device=device, dtype=dtype)

    return Sampler(episodes, n_tasks, name or getattr(family, "__name__", "tasks"))


def _family(family: Family | str) -> Family:
    if isinstance(family, str):
        from innerloop.tasks.families import get_family

        return get_family(family)
    if not callable(family):
        raise UserError(f"a family of tasks is a function or a name, such as 'sine', not {family!r}.")
    return family


def _add_noise(batch: TaskBatch, draws: Draws, noise: float) -> TaskBatch:
    support = draws.normal("noise-support", tuple(batch.y_support.shape[1:]), std=noise, per="sample")
    query = draws.normal("noise-query", tuple(batch.y_query.shape[1:]), std=noise, per="sample")
    return batch._replace(y_support=batch.y_support + support, y_query=batch.y_query + query)
