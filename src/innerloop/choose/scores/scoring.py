"""Any score of the table, of a network on a few tasks; sizes are the baselines that others must beat."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch

from innerloop.choose.scores.score_table import ScoreEntry, find
from innerloop.core.importing import Trusted, load_object
from innerloop.core.losses import get_loss
from innerloop.core.types import Buffers, Params, TaskBatch, all_samples
from innerloop.nets.network import Network


class Score(NamedTuple):
    """A number, and why it is not finite if it is not."""

    value: float
    reason: str = ""


class ScoreResult(Protocol):
    """What every score gives: at least these two."""

    @property
    def value(self) -> float:
        """The score."""

    @property
    def reason(self) -> str:
        """Why the value is not finite, or tells nothing; empty if all is well."""


def score(
    name: str, network: Network, params: Params, buffers: Buffers, tasks: TaskBatch, **settings: Any
) -> ScoreResult:
    """A score by name. Every score is given the part of the tasks that it looks at.

    Scores of inputs and of one batch get the samples of all tasks together, task after task; ZiCo's batches
    are the tasks. Where targets are numbers the loss is the mean square.

    Args:
        name: one of :data:`~innerloop.choose.scores.score_table.SCORES`.
        network: what is scored.
        params: its parameters.
        buffers: its buffers.
        tasks: a few of them.
        settings: further arguments of the score's function.

    Returns:
        Something with at least ``value`` and ``reason``.

    >>> from innerloop import mlp
    >>> net = mlp(2, [8], 2)
    >>> x, y = torch.randn(3, 2, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([[0, 1]] * 3)
    >>> tasks = TaskBatch(x, y, x + 1, y, torch.arange(3))
    >>> score("parameters", net, *net.init(torch.Generator().manual_seed(0)), tasks).value
    42.0
    """
    entry = find(name)
    arguments: dict[str, Any] = {**entry.fixed, **settings}
    if entry.takes in ("batch", "batches") and tasks.y_support.is_floating_point():
        arguments.setdefault("loss", get_loss("mse"))
    compute = load_object(Trusted(entry.function))  # of our own table
    result: ScoreResult = compute(network, params, buffers, *_data(entry, tasks), **arguments)
    return result


def _data(entry: ScoreEntry, tasks: TaskBatch) -> tuple[Any, ...]:
    if entry.takes == "tasks":
        return (tasks,)
    if entry.takes == "shape":
        return (tuple(tasks.x_support.shape[2:]),)
    pairs = [all_samples(task) for task in tasks.tasks()]
    if entry.takes == "batches":
        return (pairs,)
    x, y = (torch.cat(column) for column in zip(*pairs, strict=True))
    return (x,) if entry.takes == "inputs" else (x, y)
