"""Does a learner of the table behave, built as a recipe builds it?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from innerloop.core.losses import get_loss, is_classification
from innerloop.core.random import generator
from innerloop.core.types import Buffers, Params, TaskBatch, stack_tasks
from innerloop.experiment.learner import Given, from_entry
from innerloop.experiment.recipe.schema import Inner
from innerloop.kernels.analytic.networks import mlp_kernel
from innerloop.kernels.meta.descent import Descent
from innerloop.kernels.meta.predict import Method, fit
from innerloop.learners.base import OWN_PREFIX, Learner, is_own
from innerloop.learners.entry import Variant
from innerloop.learners.kernel import kernel_learner, regression_tasks
from innerloop.learners.objectives.episodic import episodic
from innerloop.learners.others import OTHERS
from innerloop.learners.table import LEARNERS
from innerloop.nets.mlp import mlp
from innerloop.nets.network import Network
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


class Made(NamedTuple):
    """A learner with parameters and buffers to start from."""

    learner: Learner
    params: Params
    buffers: Buffers


def check_method(method: str, variant: str = "", **inner: Any) -> None:
    """A learner of the table conforms, and so does episodic training with it.

    Both :func:`check_learner` and :func:`check_objective` are run, on tasks with labels, and with numbers as
    targets unless the learner works on classes only. What it cannot do its entry says.

    Args:
        method: its name in the table of learners.
        variant: one of its entry's variants.
        inner: further settings of a recipe's ``inner`` section.

    Raises:
        AssertionError: listing everything that failed.
    """
    entry = {**LEARNERS, **OTHERS}[method]
    chosen = entry.variants[variant] if variant else Variant({})
    how = chosen.differentiated or entry.differentiated
    exact = how in ("through", "implicit", "nothing")
    for case in (labels(), *(() if entry.needs_labels else (numbers(),))):
        given = {**entry.solved_with, **chosen.settings, **inner}
        made = fitted_kernels(case, **given) if entry.made_from == "kernels" else built(method, case, given)
        learner, params, buffers = made
        check_learner(
            learner, params, buffers, case.batch, loss=case.loss, exact_gradient=exact, vmap=entry.vmap
        )
        more = learner.init(params), learner.init_buffers(params, buffers)
        strange = [n for n in {**more[0], **more[1]} if n not in {**params, **buffers} and not is_own(n)]
        assert not strange, f"learner '{method}' owns {strange[0]}: begin its name with '{OWN_PREFIX}'"
        if not params:
            continue  # nothing to train
        objective, known = episodic(learner, get_loss(case.loss)), exact or how == "envelope"
        check_objective(objective, *more, case.batch, exact_gradient=known, vmap=entry.vmap)


def built(method: str, case: Case, given: Mapping[str, Any]) -> Made:
    """A learner as a recipe builds it, and the first weights of its network.

    Args:
        method: its name in the table of learners.
        case: network, loss and number of classes.
        given: further settings of a recipe's ``inner`` section.
    """
    start = {"lr": 0.01, "steps": 2, "loss": case.loss, **given}
    if method in LEARNERS:
        start["method"] = method
    section = Inner(**start)
    entry = {**LEARNERS, **OTHERS}[method]
    learner = from_entry(entry, Given(section, section.steps, case.ways), case.network)
    return Made(learner, *case.network.init(generator(0, "check")))


def fitted_kernels(case: Case, method: Method = "mtl") -> Made:
    """The kernel of a meta-learner, fitted to the tasks that it is then tried on."""
    ways = case.ways if is_classification(get_loss(case.loss)) else None
    tasks = case.batch.to(dtype=torch.float64)
    tasks = tasks if ways is None else regression_tasks(tasks, ways)
    inner = None if method == "mtl" else Descent(0.5)
    fitted = fit(mlp_kernel(3, activation="erf"), tasks, method, inner=inner)
    return Made(kernel_learner(fitted, ways), {}, {})


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
