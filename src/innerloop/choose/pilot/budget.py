"""How long candidates may be trained: from measured costs, so that the whole stays within a budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from innerloop.choose.pilot.trials import Costs
from innerloop.core.errors import UserError
from innerloop.core.words import duration

LEAST_STEPS = 20
"""Training of fewer meta-steps tells nothing."""

LEAST_EPISODES, MOST_EPISODES = 40, 200
"""Tasks of a judgement, where nothing else is asked."""

JUDGING = 0.25
"""Share of the time of a candidate that judging it may take."""

CAUTION = 0.9
"""Share of the time left that is planned: costs are measured on few steps."""


class Length(NamedTuple):
    """How long every candidate is trained, and on how many tasks it is judged."""

    steps: int
    episodes: int


def mean_costs(costs: Sequence[Costs]) -> Costs:
    """Of several candidates."""
    return Costs(*(sum(column) / len(costs) for column in zip(*costs, strict=True)))


def affordable(
    seconds: float, costs: Costs, steps: int | None = None, episodes: int | None = None
) -> Length | None:
    """The longest training of one candidate within its seconds; None if even the shortest takes longer.

    What is asked for is taken as it is.

    >>> affordable(10.02, Costs(0.05, 0.05, 0.1))
    Length(steps=149, episodes=49)
    >>> affordable(1.0, Costs(0.05, 0.05, 0.1)) is None
    True
    """
    left = seconds - costs.build
    judged = episodes or min(MOST_EPISODES, max(LEAST_EPISODES, int(JUDGING * left / costs.episode)))
    if steps is not None:
        return Length(steps, judged)
    room = int((left - judged * costs.episode) / costs.step)
    return Length(room, judged) if room >= LEAST_STEPS else None


def least_seconds(costs: Costs, episodes: int | None = None) -> float:
    """What the shortest training of one candidate takes."""
    return costs.build + LEAST_STEPS * costs.step + (episodes or LEAST_EPISODES) * costs.episode


def too_small(budget: str, needed: float, what: str, fewer: str) -> UserError:
    """A budget that does not suffice: what would."""
    return UserError(
        f"budget={budget} is too small for {what}, which take about {duration(round(needed))} here: set "
        f"budget={enough(needed)} or more{fewer}."
    )


def enough(needed: float) -> str:
    """A budget of so many seconds or a little more, as it is typed.

    >>> enough(42.0), enough(303.2)
    ('50s', '6m')
    """
    return f"{math.ceil(needed / 60)}m" if needed > 90 else f"{10 * math.ceil(needed / 10)}s"
