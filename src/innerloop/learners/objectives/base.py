"""What an objective is, and which there are."""

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


class ObjectiveEntry(NamedTuple):
    """What is minimised across tasks."""

    title: str
    paper: str
    minimises: str
    per_task: str
    differentiated: str
    code: str


OBJECTIVES: dict[str, ObjectiveEntry] = {
    "episodic": ObjectiveEntry(
        "meta-learning by episodes",
        "eqs. 10, 11, 13 and 21; 19 and 20 with a split",
        "the query loss after the inner problem of `inner.method`",
        "parameters that its inner problem finds and nobody keeps",
        "as the learner says",
        "learners/objectives/episodic.py",
    ),
    "reptile": ObjectiveEntry(
        "Reptile",
        "Nichol et al. 2018",
        "nothing: it moves to the solution of the inner problem",
        "parameters that its inner problem finds and nobody keeps",
        "not at all",
        "learners/objectives/reptile.py",
    ),
    "multitask": ObjectiveEntry(
        "MTL",
        "eq. 12",
        "the loss of a shared body under every task's own head",
        "a head that is trained and kept",
        "no inner problem",
        "learners/objectives/multitask.py",
    ),
    "erm": ObjectiveEntry(
        "NAL, ERM; RFS with `tasks.family=supervised`",
        "Landscape; Tian et al. 2020",
        "the loss of one predictor for all",
        "nothing",
        "no inner problem",
        "learners/objectives/episodic.py",
    ),
    "none": ObjectiveEntry(
        "pretrained weights, judged as they are",
        "—",
        "nothing: no run trains them",
        "a head that `eval.head` fits in tests",
        "no inner problem",
        "experiment/backbone_run.py",
    ),
}
"""By their names in ``outer.objective``."""


def objectives() -> str:
    """Every objective by its name in ``outer.objective``."""
    heading = (
        "`outer.objective`",
        "method",
        "Bridge, or paper",
        "minimises",
        "a task has to itself",
        "differentiated",
    )
    rows = [(f"`{name}`", *entry[:5]) for name, entry in OBJECTIVES.items()]
    return "\n".join("| " + " | ".join(row) + " |" for row in (heading, ["---"] * len(heading), *rows))
