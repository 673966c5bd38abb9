"""How much a sweep over inner rates may cost, and how far that goes: at most 5 % of the run's steps and time.

Only ratios of measured times enter, coarsely rounded, so that a busy machine decides as an idle one does.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from innerloop.experiment.pictures import IMAGE_FAMILIES
from innerloop.experiment.recipe.schema import Recipe
from innerloop.training.execution.auto import expected_speedup

SHARE = 0.05
"""Of the run's meta-steps, and of its time, that a sweep may take in all."""

LEAST_STEPS, LEAST_EPISODES = 10, 20
"""A rate that took fewer steps, or is judged on fewer tasks, tells nothing: below that there is no sweep."""

BEYOND = 2
"""Rates that may be added where the best one is an end of the range."""


class Costs(NamedTuple):
    """Seconds, measured at the first rate: of a meta-step, of a validation task, of building the parts."""

    step: float
    episode: float
    build: float


class Sweep(NamedTuple):
    """What a sweep does at every rate."""

    steps: int
    episodes: int
    beyond: int


NONE = Sweep(0, 0, 0)
"""No sweep."""


def steps_of_each(steps: int, rates: int) -> int:
    """The steps that 5 % of a run leave for each rate.

    >>> steps_of_each(1000, 5)
    10
    """
    return int(SHARE * steps) // rates


def too_short(recipe: Recipe, rates: int) -> str | None:
    """Why a run has too few steps for any sweep; None if it has enough."""
    if steps_of_each(recipe.outer.steps, rates) >= LEAST_STEPS:
        return None
    enough = math.ceil(LEAST_STEPS * rates / SHARE)
    return (
        f"outer.steps={recipe.outer.steps} leaves no room for a sweep: {SHARE:.0%} of the steps are fewer "
        f"than the {LEAST_STEPS} for each of {rates} rates that tell anything (outer.steps={enough} has them)"
    )


def too_dear(recipe: Recipe, rates: int, costs: Costs) -> str:
    """Why a run has too little time for a sweep."""
    least = rates * (LEAST_STEPS * costs.step + 2 * LEAST_EPISODES * costs.episode + costs.build)
    whole = run_seconds(recipe, costs)
    return (
        f"there is no time for a sweep: {LEAST_STEPS} steps and twice {LEAST_EPISODES} validation tasks for "
        f"each of {rates} rates would take about {least:.3g} s, and {SHARE:.0%} of the run are about "
        f"{SHARE * whole:.3g} s"
    )


def affordable(recipe: Recipe, rates: int, costs: Costs) -> Sweep | None:
    """The longest sweep within the budget, with room beyond the ends if possible; None if there is none."""
    step = max(costs.step, 1e-9)
    episode, build = _power_of_two(costs.episode / step), _power_of_two(costs.build / step)
    budget = SHARE * run_seconds(recipe, Costs(1.0, episode, build), step)
    task = 2 * episode  # each is judged on twice
    for beyond in (BEYOND, 0):
        each = budget / (rates + beyond) - build
        cap = steps_of_each(recipe.outer.steps, rates + beyond)
        if min(cap, each - LEAST_EPISODES * task) >= LEAST_STEPS:
            wanted = max(recipe.eval.validation_episodes, LEAST_EPISODES)
            judged = _rounded(LEAST_EPISODES, min(wanted, each / 2 / task))
            if each - judged * task < LEAST_STEPS:
                judged = LEAST_EPISODES
            return Sweep(_rounded(LEAST_STEPS, min(cap, each - judged * task)), judged, beyond)
    return None


def run_seconds(recipe: Recipe, costs: Costs, step_seconds: float | None = None) -> float:
    """What the whole run is expected to take: its steps, its validations, and the evaluation at its end."""
    outer, judging = recipe.outer, recipe.eval
    seconds = costs.step if step_seconds is None else step_seconds
    pictures = recipe.tasks.family in IMAGE_FAMILIES
    faster = expected_speedup(recipe.run.compile, outer.steps, seconds, pictures)
    validations = outer.steps // (judging.every or max(1, outer.steps // 10))
    tasks = validations * judging.validation_episodes + judging.episodes
    return outer.steps * costs.step / faster + tasks * costs.episode


def _power_of_two(ratio: float) -> float:
    """The next power of two: the same for times that differ a little.

    >>> _power_of_two(0.3), _power_of_two(0.5), _power_of_two(0.0)
    (0.5, 0.5, 0.0009765625)
    """
    return float(2.0 ** math.ceil(math.log2(max(ratio, 2.0**-10))))


def _rounded(least: int, most: float) -> int:
    """The largest of 1, 1½, 2, 3, 4, 6, 8, … times the least number that is not above ``most``.

    >>> _rounded(10, 59), _rounded(10, 60), _rounded(10, 10)
    (40, 60, 10)
    """
    whole = int(least * 2 ** max(0, int(math.log2(max(most / least, 1.0)))))
    return whole * 3 // 2 if whole * 3 // 2 <= most else whole
