"""Our side, through the public functions that training uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from innerloop.bench.problems import Problem, conv_problem, sine_problem
from innerloop.core.losses import get_loss
from innerloop.core.types import Params
from innerloop.execution import Plan, meta_gradient
from innerloop.learners import maml
from innerloop.objectives import episodic


def _step(problem: Problem, loss_name: str, plan: Plan, **options: Any) -> Callable[[], Params]:
    loss = get_loss(loss_name)
    learner = maml(problem.network, loss, problem.lr, problem.steps, **options)
    run = meta_gradient(episodic(learner, loss).loss, plan)
    return lambda: run(problem.params, {}, problem.batch).grads


def sine(threads: int, steps: int, compile: str = "off", mode: str = "vmap") -> Callable[[], Params]:
    """Sinusoids."""
    return _step(sine_problem(steps), "mse", Plan(mode, threads, compile=compile))  # type: ignore[arg-type]


def conv(
    threads: int, steps: int, mode: str = "threads", workers: int = 2, tasks: int = 4, **options: Any
) -> Callable[[], Params]:
    """Conv4: ``workers`` whole tasks at a time, one intra-op thread each."""
    plan = Plan(mode, workers if mode == "threads" else threads)  # type: ignore[arg-type]
    return _step(conv_problem(steps, tasks), "cross-entropy", plan, **options)
