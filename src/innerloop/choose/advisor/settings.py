"""What ``innerloop advise`` takes, besides the settings of a recipe. Importing this does not import torch."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from innerloop.choose.advisor.methods import NUMBERS, PICTURES
from innerloop.core.errors import did_you_mean
from innerloop.experiment.recipe.flat import Budgeted
from innerloop.experiment.recipe.rules import Rules

YOURS = "yours"
"""The method of a recipe that was named: it races as it is."""


def _methods_exist(s: Advise) -> str | None:
    known = dict.fromkeys([*PICTURES, *NUMBERS, YOURS])
    unknown = [name for name in s.methods or () if name not in known]
    if not unknown:
        return None
    hint = did_you_mean(unknown[0], known)
    return f"methods: there is no method '{unknown[0]}'{hint}; there are {', '.join(known)}."


class Advise(Budgeted):
    """Keys of ``innerloop advise``."""

    RULES: ClassVar[Rules] = (*Budgeted.RULES, _methods_exist)

    budget: str = Field("60s", description="time for everything: 60s, 5m, 1h")
    methods: list[str] | None = Field(
        None, min_length=1, description="which methods race; none means all that fit the tasks"
    )
    backbone: str = Field(
        "auto",
        description="pretrained network beside them, for pictures: a name as model.kind takes it, none, or "
        "auto: one that is installed",
    )
