"""Settings of commands that work within a time. Importing this does not import torch."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from innerloop.core.words import seconds_in
from innerloop.experiment.recipe.flat import FlatSettings
from innerloop.experiment.recipe.rules import Rules


def _budget_is_a_time(s: Budgeted) -> str | None:
    if seconds_in(s.budget):
        return None
    return f"budget={s.budget} is no length of time: write 60s, 30m or 2h."


class Budgeted(FlatSettings):
    """What a command takes that is given a time for everything.

    >>> Budgeted(budget="2m").seconds
    120.0
    """

    RULES: ClassVar[Rules] = (_budget_is_a_time,)

    budget: str = Field("30m", description="time for everything: 60s, 30m, 2h")

    @property
    def seconds(self) -> float:
        """The budget in seconds."""
        return seconds_in(self.budget) or 0.0
