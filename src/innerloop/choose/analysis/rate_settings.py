"""What ``analyze rate`` takes, and when which setting is read: on drawn data or for a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from innerloop.experiment.recipe.flat import FlatSettings, Readers, When
from innerloop.experiment.recipe.rules import Rules
from innerloop.experiment.recipe.schema import LossName

if TYPE_CHECKING:
    pass

SEARCHED = 100
"""Up to so many features the rate of least training risk is also searched for."""


def _drawn(words: str, holds: Callable[[Settings], bool]) -> When:
    """Read on drawn data if a condition holds as well."""
    return When(words, lambda s, recipe: recipe is None and holds(s))


_DRAWN = When("drawn data, without a recipe", lambda _, recipe: recipe is None)
_QUERIES = _drawn(
    "forms with query samples",
    lambda s: (
        s.kind in ("split", "gradient", "bracket") or (s.kind not in ("auto", "lim") and s.dim <= SEARCHED)
    ),
)
_OPTIMA = _drawn(
    f"drawn data, with kind=gradient or bracket or a dim of at most {SEARCHED}",
    lambda s: s.kind in ("gradient", "bracket") or s.dim <= SEARCHED,
)


def _ends_are_in_order(s: Settings) -> str | None:
    if s.data != "uniform" or s.low < s.high:
        return None
    return f"low={s.low:g} must be below high={s.high:g}: exchange them."


def _targets_are_numbers(s: Settings) -> str | None:
    if not s.loss.startswith("cross-entropy"):
        return None
    return f"loss={s.loss} is for labels, and drawn data have numbers: give loss=mse, half-mse or half-sse."


class Settings(FlatSettings):
    """What ``analyze rate`` takes."""

    RULES: ClassVar[Rules] = (_ends_are_in_order, _targets_are_numbers)
    READERS: ClassVar[Readers] = {
        "kind": (When("drawn data", lambda s, recipe: recipe is None or s.kind == "auto"),),
        "data": (_DRAWN,),
        "low": (_DRAWN, _drawn("data=uniform", lambda s: s.data == "uniform")),
        "high": (_DRAWN, _drawn("data=uniform", lambda s: s.data == "uniform")),
        "scale": (_DRAWN, _drawn("data=normal or exponential", lambda s: s.data != "uniform")),
        "mean": (_DRAWN, _drawn("data=normal", lambda s: s.data == "normal")),
        "features": (_DRAWN,),
        "dim": (_DRAWN,),
        "width": (_DRAWN, _drawn("features=gaussian", lambda s: s.features == "gaussian")),
        "shots": (_DRAWN,),
        "queries": (_DRAWN, _QUERIES),
        "optima": (_DRAWN, _OPTIMA),
        "loss": (_DRAWN,),
        "seed": (_DRAWN,),
    }
    OF_RECIPES: ClassVar[Mapping[str, str]] = {
        "shots": "tasks.shots",
        "queries": "tasks.queries",
        "loss": "inner.loss",
        "seed": "run.seed",
    }

    kind: Literal["auto", "lim", "split", "stacked", "variance", "merged", "gradient", "bracket"] = Field(
        "auto", description="which estimate; auto: lim on drawn data, what suits the learner on real tasks"
    )
    data: Literal["uniform", "normal", "exponential"] = Field("uniform", description="inputs are drawn so")
    low: float = Field(-5.0, description="uniform: lower end")
    high: float = Field(5.0, description="uniform: upper end")
    scale: float = Field(1.0, gt=0, description="normal: deviation; exponential: mean")
    mean: float = Field(0.0, description="normal: mean")
    features: Literal["identity", "random", "gaussian", "polynomial"] = Field(
        "identity", description="basis functions of the drawn inputs"
    )
    dim: int = Field(20, ge=1, description="drawn data: dimension of the features")
    width: float = Field(1.0, gt=0, description="gaussian features: width of each bump")
    shots: int = Field(50, ge=1, description="samples per task that are adapted to")
    queries: int = Field(50, ge=1, description="samples per task that are judged on")
    n_tasks: int = Field(2000, ge=2, description="tasks to draw; recipes look at fewer")
    optima: float = Field(3.0, gt=0, description="drawn data: variance of each coordinate of the task optima")
    loss: LossName = Field("mse", description="drawn data: the convention of the rate")
    seed: int = Field(0, ge=0, description="of everything drawn")
