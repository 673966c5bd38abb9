"""Does an objective behave?"""

from __future__ import annotations

import torch

from innerloop.core.random import generator
from innerloop.core.types import Buffers, Params, TaskBatch
from innerloop.learners.objectives.base import Objective
from innerloop.testing.closeness import close
from innerloop.testing.collect import (
    Failures,
    copied,
    expect_slope,
    to_dtype,
)
from innerloop.training.execution.gradients import meta_gradient
from innerloop.training.execution.plan import Plan


def check_objective(
    objective: Objective,
    params: Params,
    buffers: Buffers,
    batch: TaskBatch,
    *,
    exact_gradient: bool = True,
    vmap: bool = True,
) -> None:
    """Pure, the same in every execution mode, gradients right and named like the parameters.

    Args:
        objective: the objective.
        params: meta-parameters (``objective.init`` is applied here).
        buffers: the network's buffers.
        batch: a few tasks.
        exact_gradient: whether its gradient should equal finite differences (false for first-order methods).
        vmap: whether it can run under ``vmap``.

    Raises:
        AssertionError: listing everything that failed.
    """
    failures = Failures(f"objective '{objective.name}'")
    params = objective.init(to_dtype(params, torch.float64), generator(0, "check"))
    buffers, batch = to_dtype(buffers, torch.float64), batch.to(dtype=torch.float64)
    failures.expect(
        (objective.loss is None) != (objective.direction is None),
        "give either a loss or a direction, not both",
    )
    failures.attempt("execution", lambda: _modes(objective, params, buffers, batch, vmap, failures))
    if objective.loss is not None and exact_gradient:
        failures.attempt("gradient", lambda: _gradient(objective, params, buffers, batch, failures))
    failures.report()


def _modes(
    objective: Objective, params: Params, buffers: Buffers, batch: TaskBatch, vmap: bool, failures: Failures
) -> None:
    def run(plan: Plan) -> object:
        """The meta-gradient under a plan."""
        return meta_gradient(objective.loss, plan, direction=objective.direction)(params, buffers, batch)

    before = copied((params, buffers, batch))
    looped = meta_gradient(objective.loss, Plan("loop"), direction=objective.direction)(
        params, buffers, batch
    )
    failures.expect(close((params, buffers, batch), before), "it changed its inputs")
    failures.expect(looped.grads.keys() == params.keys(), "gradients and parameters have different names")
    failures.expect(looped.buffers.keys() == buffers.keys(), "the buffers given back have other names")
    failures.expect(looped.losses.shape == (batch.size,), "there is not one scalar loss per task")
    failures.expect(bool(torch.isfinite(looped.losses).all()), "losses are not finite")
    failures.expect(close(run(Plan("threads", 2)), looped), "threads and loop disagree")
    if vmap:
        failures.expect(close(run(Plan("vmap")), looped, scale=100), "vmap and loop disagree")
        failures.expect(
            close(run(Plan("vmap", chunk=2)), looped, scale=100), "chunked vmap and loop disagree"
        )


def _gradient(
    objective: Objective, params: Params, buffers: Buffers, batch: TaskBatch, failures: Failures
) -> None:
    assert objective.loss is not None
    expect_slope(objective.loss, params, buffers, batch, failures, "gradient", objective.untrained)
