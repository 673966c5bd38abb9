"""``analyze rate``: the inner learning rate, from closed forms on drawn data or for a recipe's own tasks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from innerloop.choose.analysis import Analysis, Say
from innerloop.choose.analysis.rate_settings import SEARCHED
from innerloop.choose.analysis.rate_settings import Settings as Settings
from innerloop.experiment.words import recipe_words
from innerloop.learners.table import estimated_rates

if TYPE_CHECKING:
    from torch import Tensor

    from innerloop.choose.rate_advice import JudgedRate
    from innerloop.experiment.recipe.schema import Recipe
    from innerloop.theory.estimates.rate_forms import FormRate


def run(settings: Settings, recipe: Recipe | None, say: Say) -> FormRate | JudgedRate:
    """The estimate, with bounds and sampling error."""
    return _for_drawn(settings) if recipe is None else _for_recipe(settings, recipe, say)


@recipe_words()
def _for_recipe(settings: Settings, recipe: Recipe, say: Say) -> JudgedRate:
    from innerloop.choose.rate_advice import judge_rate
    from innerloop.choose.rates import advice_for, provisional
    from innerloop.core.losses import get_loss, is_classification
    from innerloop.experiment.parts import build

    tasks = settings.n_tasks if "n_tasks" in settings.model_fields_set else None
    advice = advice_for(build(provisional(recipe)), tasks)
    labels = is_classification(get_loss(recipe.inner.loss))
    own = recipe.inner.lr if labels and isinstance(recipe.inner.lr, float) else None
    judged = judge_rate(advice, own, recipe.inner.method)
    if judged.warning:
        say(f"warning: {judged.warning}")
    return judged


def _for_drawn(settings: Settings) -> FormRate:
    from innerloop.theory.estimates.rate_forms import LinearTasks, needed, rate_by

    form = "lim" if settings.kind == "auto" else settings.kind
    search = settings.dim <= SEARCHED
    asked = needed(form, search)
    tasks = LinearTasks(
        _features(settings, "support", settings.shots),
        _features(settings, "query", settings.queries) if "query" in asked else None,
        _optima(settings) if "optima" in asked else None,
    )
    return rate_by(form, tasks, settings.loss, search=search, seed=settings.seed)


def _features(settings: Settings, name: str, samples: int) -> Tensor:
    """Drawn inputs through the basis functions, ``(n_tasks, samples, dim)`` in float64."""
    import torch

    from innerloop.core.random import Draws, generator
    from innerloop.theory.basis import gaussian_basis, polynomial_basis, random_matrix, spread_centres

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


def _optima(settings: Settings) -> Tensor:
    import torch

    from innerloop.core.random import Draws

    draws = Draws(settings.seed, list(range(settings.n_tasks)), dtype=torch.float64)
    return draws.normal("optimum", (settings.dim,), std=math.sqrt(settings.optima))


def unfit(_: Settings, recipe: Recipe | None) -> str | None:
    """Methods without an inner loop have no inner rate."""
    if recipe is None or recipe.inner.method in estimated_rates():
        return None
    return f"inner.method={recipe.inner.method} has no inner learning rate: set inner.method=anil or maml."


ANALYSIS = Analysis(Settings, run, unfit=unfit)
