"""Short training at one inner rate and what it costs: what a sweep is made of."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy

from innerloop.choose.rates.budget import LEAST_EPISODES, Costs
from innerloop.core.cores import available_cores
from innerloop.core.errors import NonFiniteError, UserError
from innerloop.experiment.fitting import fit_parts, judge
from innerloop.experiment.learner import test_steps
from innerloop.experiment.parts import Parts
from innerloop.experiment.pictures import IMAGE_FAMILIES
from innerloop.experiment.recipe.schema import Recipe
from innerloop.training.execution.plan import Plan
from innerloop.training.state import TrainState

TIMED_STEPS, TIMED_TASKS = 3, 4
"""What is timed; where tasks run in one batched computation, all that a sweep would judge at least."""


class Trial(NamedTuple):
    """Training at one rate from the first weights; ``state`` is None if it diverged."""

    rate: float
    parts: Parts
    state: TrainState | None


def measured(
    parts: Parts, rates: Sequence[float], clock: Callable[[], float] = time.perf_counter
) -> tuple[Costs, Trial]:
    """Seconds of a step, of a validation task and of building, and the trial they were measured on.

    It is that of the first rate that does not diverge; the smallest comes first, as the least likely to.
    """
    timed = LEAST_EPISODES if trial_plan(parts.recipe).mode == "vmap" else TIMED_TASKS
    for rate in rates:
        begin = clock()
        trial = begun(parts, rate)
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


def begun(parts: Parts, rate: float) -> Trial:
    """The first weights, with parts for a rate."""
    chosen = parts.at_rate(rate)
    return Trial(float(rate), chosen, chosen.first)


def further(trial: Trial, steps: int) -> Trial:
    """The trial after this many steps in all."""
    if trial.state is None:
        return trial
    try:
        state = fit_parts(trial.parts, trial.state, plan=trial_plan(trial.parts.recipe), steps=steps)
    except NonFiniteError:
        return trial._replace(state=None)
    return trial._replace(state=state)


def judged(trial: Trial, episodes: int) -> list[float]:
    """Scores on the first validation tasks; none if it diverged, in training or in a task."""
    _, parts, state = trial
    if state is None:
        return []
    steps, plan = test_steps(parts.recipe), trial_plan(parts.recipe)
    with numpy.errstate(invalid="ignore"):  # infinite scores are expected here, and left out
        evaluation = judge(parts, state.params, state.buffers, "validation", episodes, plan, steps)
    return evaluation.scores if all(map(math.isfinite, evaluation.scores)) else []


def trial_plan(recipe: Recipe) -> Plan:
    """Pictures a task per core; vectors all at once, where small operations are faster on one thread."""
    pictures = recipe.tasks.family in IMAGE_FAMILIES or recipe.inner.checkpoint
    cores = recipe.run.threads or available_cores()
    return Plan("threads", cores) if pictures else Plan("vmap", 1, recipe.run.chunk)
