"""Short training at one inner rate and what it costs: what a sweep is made of."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy
import torch

from innerloop.core.errors import NonFiniteError, UserError
from innerloop.evaluation import evaluate
from innerloop.execution import Plan
from innerloop.execution.plan import available_cores, set_intra_op_threads
from innerloop.experiment.build import Parts, build, for_test
from innerloop.experiment.learner import test_steps
from innerloop.experiment.pictures import IMAGE_FAMILIES
from innerloop.experiment.rate_budget import LEAST_EPISODES, Costs
from innerloop.recipes.schema import Recipe
from innerloop.training import TrainState, fit, initial_state

TIMED_STEPS, TIMED_TASKS = 3, 4
"""What is timed; where tasks run in one batched computation, all that a sweep would judge at least."""


class Trial(NamedTuple):
    """Training at one rate from the first weights; ``state`` is None if it diverged."""

    rate: float
    recipe: Recipe
    parts: Parts
    state: TrainState | None


def measured(
    recipe: Recipe, rates: Sequence[float], clock: Callable[[], float] = time.perf_counter
) -> tuple[Costs, Trial]:
    """Seconds of a step, of a validation task and of building, and the trial they were measured on.

    It is that of the first rate that does not diverge; the smallest comes first, as the least likely to.

    Raises:
        UserError: all of them diverge.
    """
    timed = LEAST_EPISODES if _plan(recipe).mode == "vmap" else TIMED_TASKS
    for rate in rates:
        begin = clock()
        trial = begun(recipe, rate)
        built = clock()
        trial = further(trial, 1)  # the first step warms up
        warm = clock()
        trial = further(trial, 1 + TIMED_STEPS)
        stepped = clock()
        judged(trial, timed)
        ended = clock()
        if trial.state is not None:
            costs = Costs((stepped - warm) / TIMED_STEPS, (ended - stepped) / timed, built - begin)
            return costs, trial
    raise all_diverged(rates)


def all_diverged(rates: Sequence[float]) -> UserError:
    """There is nothing to choose from."""
    return UserError(
        f"every rate of the sweep ({min(rates):.3g} to {max(rates):.3g}) made the loss infinite: "
        "set inner.lr to a smaller number, or outer.clip=10."
    )


def begun(recipe: Recipe, rate: float) -> Trial:
    """The first weights, with parts for a rate."""
    chosen = recipe.model_copy(update={"inner": recipe.inner.model_copy(update={"lr": float(rate)})})
    parts = build(chosen)
    return Trial(float(rate), chosen, parts, initial_state(parts.params, parts.buffers))


def further(trial: Trial, steps: int) -> Trial:
    """The trial after so many steps in all."""
    _, recipe, parts, state = trial
    if state is None:
        return trial
    try:
        state = fit(
            parts.objective,
            state,
            parts.train,
            parts.optimiser,
            steps=steps,
            batch=recipe.outer.batch,
            plan=_plan(recipe),
            schedule=parts.schedule,
            clip=recipe.outer.clip,
        )
    except NonFiniteError:
        state = None
    return trial._replace(state=state)


def judged(trial: Trial, episodes: int) -> list[float]:
    """Scores on the first validation tasks; none if it diverged, in training or in a task."""
    _, recipe, parts, state = trial
    if state is None:
        return []
    learner = parts.learner_after(test_steps(recipe))
    weights = for_test(state.params, state.buffers)
    with torch.no_grad(), numpy.errstate(invalid="ignore"):  # infinite scores are expected here, and left out
        found = evaluate(learner, *weights, parts.validation, parts.loss, episodes, _plan(recipe))
    return found.scores if all(map(math.isfinite, found.scores)) else []


def _plan(recipe: Recipe) -> Plan:
    """Pictures a task per core; vectors all at once, where small operations are faster on one thread."""
    pictures = recipe.tasks.family in IMAGE_FAMILIES or recipe.inner.checkpoint
    cores = recipe.run.threads or available_cores()
    plan = Plan("threads", cores) if pictures else Plan("vmap", 1, recipe.run.chunk)
    set_intra_op_threads(plan)
    return plan
