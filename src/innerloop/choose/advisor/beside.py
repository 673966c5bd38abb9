"""What stands beside the race, each part only as long as the budget lasts: baselines and estimates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from innerloop.choose.advisor.estimates import hardness_part, landscape_part, rate_part
from innerloop.choose.advisor.pretrained import MOST, pool_order, pretrained, usable
from innerloop.choose.advisor.problem import Problem
from innerloop.choose.advisor.race import time_left
from innerloop.choose.advisor.result import HardnessPart, LandscapePart, RatePart, Row
from innerloop.choose.advisor.untrained import Ground, untrained
from innerloop.choose.pilot.keep import Sitting
from innerloop.choose.pilot.workers import OutOfTimeError, in_processes
from innerloop.core.errors import UserError
from innerloop.evaluation.baselines import WORDS
from innerloop.experiment.words import recipe_words
from innerloop.training.execution.plan import Plan

BACKBONE_SHARE = 0.3
"""Of what is left of the budget, that features of a pretrained network may take."""

Call = tuple[Callable[..., Any], tuple[Any, ...]]


def pretrained_first(
    problem: Problem, sitting: Sitting, ground: Ground, backbone: str | None
) -> tuple[Ground, list[Row], list[str]]:
    """The pictures that all tasks are drawn from, the row of a pretrained network, and why there is none."""
    if problem.asked.kind != "pictures":
        return ground, [], []
    pictures = ground.whole.pictures
    order = pool_order(ground.recipe, pictures)
    few = usable(ground.recipe, pictures, order[:MOST])
    ground = ground._replace(pool=few or usable(ground.recipe, pictures, order))
    if backbone is None:
        return ground, [], []
    sitting.say(f"features of {backbone}")
    left = time_left(problem, sitting)
    try:
        ground, row = pretrained(problem, ground, backbone, BACKBONE_SHARE * left(), left)
    except UserError as error:
        return ground, [], [str(error)]
    return ground, [row] if row else [], [] if row else [f"{backbone} was not evaluated: no time was left"]


def plain_rows(problem: Problem, sitting: Sitting, ground: Ground) -> tuple[list[Row], list[str]]:
    """Rows of what needs no training, and what there was no time for."""
    ways, alone = untrained(problem), ground._replace(plan=Plan("loop", 1))
    jobs = [(of, (problem, alone)) for of in ways.values()]
    found = within(jobs, sitting, time_left(problem, sitting))
    missing = [f"{WORDS.get(name, name)} was not evaluated: no time was left" for name in ways]
    return [*found.values()], [words for place, words in enumerate(missing) if place not in found]


def estimates(problem: Problem, sitting: Sitting) -> tuple[RatePart, HardnessPart, LandscapePart]:
    """What can be said without training, as far as time allows."""
    parts: list[Callable[[Problem], Any]] = [rate_part, hardness_part, landscape_part]
    found = within([(part, (problem,)) for part in parts], sitting, time_left(problem, sitting))
    why = f"there was no time left for it in budget={problem.asked.settings.budget}."
    rate, hard = found.get(0, RatePart(False, why)), found.get(1, HardnessPart((), "", "", why))
    return rate, hard, found.get(2, LandscapePart(False, why))


def within(jobs: Sequence[Call], sitting: Sitting, left: Callable[[], float]) -> dict[int, Any]:
    """The values of calls by their place, each in a process.

    Those that time does not suffice for are ended.
    """
    found: dict[int, Any] = {}
    with suppress(OutOfTimeError):
        for place, value in in_processes(_called, jobs, sitting.workers, left):
            found[place] = value
    return found


@recipe_words()
def _called(job: Call) -> Any:
    function, given = job
    return function(*given)
