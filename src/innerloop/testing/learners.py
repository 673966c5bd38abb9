"""Does a learner behave?"""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.core.losses import get_loss, is_classification
from innerloop.core.random import generator
from innerloop.core.types import Buffers, Params, Task, TaskBatch
from innerloop.learners.base import Learner
from innerloop.testing.closeness import close
from innerloop.testing.collect import (
    Failures,
    copied,
    expect_slope,
    to_dtype,
)
from innerloop.training.execution.plan import Plan
from innerloop.training.execution.tasks import map_tasks


def check_learner(
    learner: Learner,
    params: Params,
    buffers: Buffers,
    batch: TaskBatch,
    *,
    loss: str = "mse",
    exact_gradient: bool = True,
    vmap: bool = True,
) -> None:
    """Pure, blind to the order of the support set, the same in every execution mode, rightly differentiated.

    Args:
        learner: the learner.
        params: parameters of its network (``learner.init`` is applied here).
        buffers: its network's buffers (``learner.init_buffers`` is applied here).
        batch: a few tasks.
        loss: which loss its outputs are for.
        exact_gradient: whether the meta-gradient should equal finite differences of the query loss (false
            for first-order methods; without parameters there is nothing to compare).
        vmap: whether it can run under ``vmap``.

    Raises:
        AssertionError: listing everything that failed.
    """
    failures = Failures(f"learner '{learner.name}'")
    params, buffers = to_dtype(params, torch.float64), to_dtype(buffers, torch.float64)
    params, buffers = learner.init(params), learner.init_buffers(params, buffers)
    batch = batch.to(dtype=torch.float64)
    failures.attempt(
        "adapt and predict", lambda: _single(learner, params, buffers, batch.task(0), loss, failures)
    )
    failures.attempt("execution", lambda: _modes(learner, params, buffers, batch, vmap, failures))
    if exact_gradient and params:
        failures.attempt("gradient", lambda: _gradient(learner, params, buffers, batch, loss, failures))
    failures.report()


def _outputs(learner: Learner, params: Params, buffers: Buffers, task: Task) -> Tensor:
    adapted = learner.adapt(params, buffers, task.x_support, task.y_support)
    return learner.predict(adapted, task.x_query)[0]


def _single(
    learner: Learner, params: Params, buffers: Buffers, task: Task, loss: str, failures: Failures
) -> None:
    before = copied((params, buffers, task))
    outputs = _outputs(learner, params, buffers, task)
    failures.expect(close((params, buffers, task), before), "adapt or predict changed its inputs")
    failures.expect(close(_outputs(learner, params, buffers, task), outputs), "a second call differs")
    failures.expect(len(outputs) == len(task.x_query), "there is not one output row per query sample")
    failures.expect(outputs.dtype == torch.float64, f"float64 in gives {outputs.dtype} out")
    failures.expect(bool(torch.isfinite(outputs).all()), "outputs are not finite")
    if not is_classification(get_loss(loss)):
        failures.expect(outputs.shape == task.y_query.shape, "outputs and targets differ in shape")
    order = torch.randperm(len(task.x_support), generator=generator(0, "order"))
    moved = task._replace(x_support=task.x_support[order], y_support=task.y_support[order])
    failures.expect(
        close(_outputs(learner, params, buffers, moved), outputs, scale=100),
        "predictions depend on the order of the support set",
    )


def _modes(
    learner: Learner, params: Params, buffers: Buffers, batch: TaskBatch, vmap: bool, failures: Failures
) -> None:
    def one(p: Params, b: Buffers, task: Task) -> Tensor:
        """The outputs of one task."""
        return _outputs(learner, p, b, task)

    with torch.no_grad():
        looped = map_tasks(one, Plan("loop"))(params, buffers, batch)
        for mode in ("threads", "vmap") if vmap else ("threads",):
            other = map_tasks(one, Plan(mode, 2))(params, buffers, batch)
            failures.expect(close(other, looped, scale=100), f"{mode} and loop disagree")


def _gradient(
    learner: Learner, params: Params, buffers: Buffers, batch: TaskBatch, loss: str, failures: Failures
) -> None:
    measure = get_loss(loss)

    def value(p: Params, b: Buffers, task: Task) -> tuple[Tensor, Buffers]:
        """The query loss of one task."""
        return measure.value(_outputs(learner, p, b, task), task.y_query), b

    expect_slope(value, params, buffers, batch, failures, "meta-gradient", learner.untrained)
