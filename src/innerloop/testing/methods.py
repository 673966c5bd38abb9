"""Does a learner of the table behave, built as a recipe builds it?"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from innerloop.core.losses import get_loss
from innerloop.core.random import generator
from innerloop.core.types import TaskBatch, stack_tasks
from innerloop.experiment.learner import build_learner
from innerloop.learners.base import OWN_PREFIX, is_own
from innerloop.learners.table import LEARNERS
from innerloop.nets.mlp import mlp
from innerloop.nets.network import Network
from innerloop.objectives.episodic import episodic
from innerloop.recipes.schema import Inner
from innerloop.tasks.families import get_family
from innerloop.tasks.sampler import make_sampler
from innerloop.testing.learners import check_learner
from innerloop.testing.objectives import check_objective

WAYS = 3


class Case(NamedTuple):
    """A small network without kinks, a loss, and a few tasks for both."""

    network: Network
    loss: str
    batch: TaskBatch
    ways: int


def check_method(method: str, **inner: Any) -> None:
    """A learner of the table conforms, and so does episodic training with it.

    Both :func:`check_learner` and :func:`check_objective` are run, on tasks with labels, and with numbers as
    targets unless the learner works on classes only.

    Args:
        method: its name in the table of learners.
        inner: further settings of a recipe's ``inner`` section.

    Raises:
        AssertionError: listing everything that failed.
    """
    entry = LEARNERS[method]
    exact = entry.differentiated in ("through", "implicit", "nothing")
    for case in (labels(), *(() if entry.needs_labels else (numbers(),))):
        start = {"lr": 0.01, "steps": 2, "loss": case.loss, **entry.solved_with}
        section = Inner(**{**start, **inner, "method": method})
        learner = build_learner(section, case.network, section.steps, case.ways)
        params, buffers = case.network.init(generator(0, "check"))
        check_learner(
            learner, params, buffers, case.batch, loss=case.loss, exact_gradient=exact, vmap=entry.vmap
        )
        more = learner.init(params), learner.init_buffers(params, buffers)
        strange = [n for n in {**more[0], **more[1]} if n not in {**params, **buffers} and not is_own(n)]
        assert not strange, f"learner '{method}' owns {strange[0]}: begin its name with '{OWN_PREFIX}'"
        objective = episodic(learner, get_loss(case.loss))
        known = exact or entry.differentiated == "envelope"
        check_objective(objective, *more, case.batch, exact_gradient=known, vmap=entry.vmap)


def numbers() -> Case:
    """Sinusoids."""
    sampler = make_sampler(get_family("sine"), seed=0, shots=5, queries=7)
    batch = stack_tasks([sampler.episode(i) for i in range(3)])
    return Case(mlp(1, [8, 8], 1, activation="tanh"), "mse", batch, 1)


def labels() -> Case:
    """Clouds of points, with as many in every class."""
    source = generator(0, "points")
    centres = torch.randn(3, WAYS, 4, generator=source)
    y = torch.arange(WAYS).repeat(3, 2)
    inputs = [
        centres.gather(1, y[..., None].expand(-1, -1, 4)) + torch.randn(3, 2 * WAYS, 4, generator=source)
        for _ in range(2)
    ]
    batch = TaskBatch(inputs[0], y, inputs[1], y, torch.arange(3 * WAYS).reshape(3, WAYS))
    return Case(mlp(4, [8, 6], WAYS, activation="tanh"), "cross-entropy", batch, WAYS)
