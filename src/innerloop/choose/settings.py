"""What ``innerloop advise`` and ``innerloop search`` take, besides the settings of a recipe. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from innerloop.choose.methods import NUMBERS, PICTURES
from innerloop.choose.scores.score_table import SCORES
from innerloop.core.errors import did_you_mean
from innerloop.experiment.recipe.flat import BudgetSettings
from innerloop.experiment.recipe.rules import Rules

SpaceName = Literal["cells", "convnet"]
POOLINGS: tuple[str, ...] = ("max", "stride")
NORMS: tuple[str, ...] = ("batch", "group", "none")

SUMS: Mapping[str, tuple[str, ...]] = {
    "metantk-nas": ("metantk", "regions"),
    "te-nas": ("ntk", "regions"),
    "naswot+synflow": ("naswot", "synflow"),
    "all": tuple(SCORES),
}
"""Sums of ranks that have a name: those of the papers, and some of baselines."""

DEFAULT_SCORE = "flops"
"""What a search ranks by if nothing is said: on average the best on CIFAR-FS and Omniglot, which is not much
(docs/scores.md)."""


class SpaceSection(BaseModel):
    """Where candidates come from: the name of the space, and its own settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: SpaceName = Field("cells", description="cells, or convnet: variants of Conv4 (short: space=)")

    @property
    def arguments(self) -> dict[str, Any]:
        """What the space is made with."""
        given = self.model_dump(exclude={"name"})
        return {key: tuple(v) if isinstance(v, list) else v for key, v in given.items() if v is not None}


class Cells(SpaceSection):
    """Stacked cells."""

    cells: int = Field(5, ge=1, le=50, description="cells of a network")
    channels: int = Field(8, ge=1, description="channels of the first cell")
    conv_3x3: Literal["separable", "dense"] = Field(
        "separable",
        description="what the operator conv_3x3 is: as in the released code, or whole",
    )


class Convnet(SpaceSection):
    """Variants of Conv4."""

    name: SpaceName = "convnet"
    depths: list[int] = Field([2, 3, 4, 5], min_length=1, description="numbers of blocks")
    widths: list[int] = Field([16, 24, 32, 48, 64, 96], min_length=1, description="numbers of filters")
    kernels: list[int] = Field([3, 5], min_length=1, description="sides of the filters")
    poolings: list[str] = Field(
        list(POOLINGS), min_length=1, description="how blocks halve the picture: max, stride"
    )
    norms: list[str] = Field(
        list(NORMS), min_length=1, description="how blocks normalise: batch, group, none"
    )


def _variants_exist(s: SpaceSettings) -> str | None:
    if not isinstance(s.space, Convnet):
        return None
    wrong = [("poolings", w, POOLINGS) for w in s.space.poolings if w not in POOLINGS]
    wrong += [("norms", w, NORMS) for w in s.space.norms if w not in NORMS]
    words = [f"space.{key} has '{word}': there are {', '.join(known)}." for key, word, known in wrong]
    numbers = (*s.space.depths, *s.space.widths, *s.space.kernels)
    words += ["space.depths, space.widths and space.kernels are at least 1."] if min(numbers) < 1 else []
    return "\n".join(words) or None


class SpaceSettings(BudgetSettings):
    """What a search and its validation both take."""

    RULES: ClassVar[Rules] = (*BudgetSettings.RULES, _variants_exist)

    space: SpaceSection = Cells()
    repeats: int = Field(3, ge=1, description="draws of weights and tasks over which a score is averaged")
    episodes: int | None = Field(
        None,
        ge=2,
        description="validation tasks of a judgement, the same for all; none lets the budget say",
    )
    steps: int | None = Field(
        None, ge=1, description="meta-steps of the longest training; none lets the budget say"
    )


def _scores_exist(s: SearchSettings) -> str | None:
    return _unknown(f"score={s.score}: there is no score", s.score.split(","), [*SCORES, *SUMS])


def _unknown(said: str, names: Iterable[str], known: Iterable[str]) -> str | None:
    unknown = next((name for name in names if name not in known), None)
    hint = "" if unknown is None else did_you_mean(unknown, known)
    return None if unknown is None else f"{said} '{unknown}'{hint}; there are {', '.join(known)}."


def _method_exists(s: SearchSettings) -> str | None:
    if s.method == "shortlist":
        return None
    from innerloop.choose.architectures.search import METHODS

    known = [name for name in METHODS if name != "random"]  # random candidates race in any case
    if s.method not in known:
        hint = did_you_mean(s.method, known)
        return f"method={s.method}: there is no such search{hint}; there are {', '.join(known)}."
    return None if s.space.name == "cells" else f"method={s.method} prunes cells: set space=cells."


class SearchSettings(SpaceSettings):
    """What a search takes."""

    RULES: ClassVar[Rules] = (*SpaceSettings.RULES, _scores_exist, _method_exists)

    k: int | None = Field(
        None,
        ge=1,
        description="candidates from the score, and as many random ones; none lets the budget say, up to 8",
    )
    method: str = Field(
        "shortlist",
        description="how candidates are found: the best of random ones by the score; or a search by pruning, "
        "such as robust, which leaves one",
    )
    score: str = Field(
        DEFAULT_SCORE, description="what ranks candidates; several, as a,b, by the sum of ranks"
    )
    pool: int | None = Field(
        None, ge=2, description="random candidates that are scored; none lets the budget say, up to 200"
    )


class ValidateSettings(SpaceSettings):
    """What ``search --validate`` takes."""

    cells: int = Field(40, ge=4, description="random candidates that are trained and scored")


@cache
def model_for(validate: bool, space: str) -> type[SpaceSettings]:
    """The settings of a search, or of its validation, in a space."""
    whole = ValidateSettings if validate else SearchSettings
    section = Convnet if space == "convnet" else Cells
    return create_model(whole.__name__, __base__=whole, space=(section, section()))


YOURS = "yours"
"""The method of a recipe that was named: it races as it is."""


def _methods_exist(s: AdviseSettings) -> str | None:
    known = dict.fromkeys([*PICTURES, *NUMBERS, YOURS])
    return _unknown("methods: there is no method", s.methods or (), known)


class AdviseSettings(BudgetSettings):
    """Keys of ``innerloop advise``."""

    RULES: ClassVar[Rules] = (*BudgetSettings.RULES, _methods_exist)

    budget: str = Field("60s", description="time for everything: 60s, 5m, 1h")
    methods: list[str] | None = Field(
        None, min_length=1, description="which methods race; none means all that fit the tasks"
    )
    backbone: str = Field(
        "auto",
        description="pretrained network beside them, for pictures: a name as model.kind takes it, none, or "
        "auto: one that is installed",
    )
