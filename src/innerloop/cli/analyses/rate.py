"""``analyze rate``: the inner learning rate, from closed forms on drawn data or for a recipe's own tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from innerloop.cli.analyses import Analysis, Say
from innerloop.experiment.messages import recipe_words
from innerloop.experiment.recipe.flat import FlatSettings, Readers, When
from innerloop.experiment.recipe.rules import Rules
from innerloop.experiment.recipe.schema import LossName
from innerloop.learners.table import estimated_rates

if TYPE_CHECKING:
    from torch import Tensor

    from innerloop.choose.rate_advice import RateCheck
    from innerloop.experiment.recipe.schema import Recipe
    from innerloop.theory.rate.linear import FormRate


SEARCHED = 100  # up to so many features the rate of least training risk is also searched for


def _drawn(words: str, holds: Callable[[RateSettings], bool]) -> When:
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


def _ends_are_in_order(s: RateSettings) -> str | None:
    if s.data != "uniform" or s.low < s.high:
        return None
    return f"low={s.low:g} must be below high={s.high:g}: exchange them."


def _targets_are_numbers(s: RateSettings) -> str | None:
    if not s.loss.startswith("cross-entropy"):
        return None
    return f"loss={s.loss} is for labels, and drawn data have numbers: give loss=mse, half-mse or half-sse."


class RateSettings(FlatSettings):
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


def run(settings: RateSettings, recipe: Recipe | None, say: Say) -> FormRate | RateCheck:
    """The estimate, with bounds and sampling error."""
    return _for_drawn(settings) if recipe is None else _for_recipe(settings, recipe, say)


@recipe_words()
def _for_recipe(settings: RateSettings, recipe: Recipe, say: Say) -> RateCheck:
    from innerloop.choose.rate_advice import judge_rate
    from innerloop.choose.rates import advice_for
    from innerloop.core.losses import get_loss, is_classification
    from innerloop.experiment.inner_rate import provisional
    from innerloop.experiment.parts import build

    tasks = settings.n_tasks if "n_tasks" in settings.model_fields_set else None
    advice = advice_for(build(provisional(recipe)), tasks)
    labels = is_classification(get_loss(recipe.inner.loss))
    own = recipe.inner.lr if labels and isinstance(recipe.inner.lr, float) else None
    judged = judge_rate(advice, own, recipe.inner.method)
    if judged.warning:
        say(f"warning: {judged.warning}")
    return judged


def _for_drawn(settings: RateSettings) -> FormRate:
    from innerloop.theory.rate.linear import LinearTasks, needed, rate_by

    form = "lim" if settings.kind == "auto" else settings.kind
    search = settings.dim <= SEARCHED
    asked = needed(form, search)
    tasks = LinearTasks(
        _features(settings, "support", settings.shots),
        _features(settings, "query", settings.queries) if "query" in asked else None,
        _optima(settings) if "optima" in asked else None,
    )
    return rate_by(form, tasks, settings.loss, search=search, seed=settings.seed)


def _features(settings: RateSettings, name: str, samples: int) -> Tensor:
    """Drawn inputs through the basis functions, ``(n_tasks, samples, dim)`` in float64."""
    import torch

    from innerloop.core.random import Draws, generator
    from innerloop.theory.rate.linear import gaussian_basis, polynomial_basis, random_matrix, spread_centres

    one = settings.features in ("gaussian", "polynomial")
    shape = (samples, 1 if one else settings.dim)
    draws = Draws(settings.seed, list(range(settings.n_tasks)), dtype=torch.float64)
    if settings.data == "uniform":
        x, ends = (
            draws.uniform(f"x-{name}", shape, settings.low, settings.high),
            (settings.low, settings.high),
        )
    elif settings.data == "normal":
        x = draws.normal(f"x-{name}", shape, settings.mean, settings.scale)
        ends = (settings.mean - 2 * settings.scale, settings.mean + 2 * settings.scale)
    else:
        x = -settings.scale * torch.log(draws.uniform(f"x-{name}", shape))
        ends = (0.0, 4 * settings.scale)
    if settings.features == "gaussian":
        return gaussian_basis(x, spread_centres(*ends, settings.dim), settings.width)
    if settings.features == "polynomial":
        return polynomial_basis(x, settings.dim)
    if settings.features == "random":
        return random_matrix(x, settings.dim, generator(settings.seed, "random-matrix"))
    return x


def _optima(settings: RateSettings) -> Tensor:
    import torch

    from innerloop.core.random import Draws

    draws = Draws(settings.seed, list(range(settings.n_tasks)), dtype=torch.float64)
    return draws.normal("optimum", (settings.dim,), std=math.sqrt(settings.optima))


def unfit(_: RateSettings, recipe: Recipe | None) -> str | None:
    """Methods without an inner loop have no inner rate."""
    if recipe is None or recipe.inner.method in estimated_rates():
        return None
    return f"inner.method={recipe.inner.method} has no inner learning rate: set inner.method=anil or maml."


ANALYSIS = Analysis(RateSettings, run, heading=lambda _: "inner.lr = ", unfit=unfit)
