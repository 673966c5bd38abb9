"""``analyze rate``: the inner learning rate, from closed forms on drawn data or for a recipe's own tasks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from innerloop.analysis.rate_settings import DRAWN, SEARCHED
from innerloop.analysis.rate_settings import Settings as Settings
from innerloop.experiment.words import recipe_words

if TYPE_CHECKING:
    from torch import Tensor

    from innerloop.recipes.schema import Recipe

WORDS = {
    "lim": "eq. 3.3: many tasks, isotropic optima, adapted to and judged on the same samples",
    "split": "H.1: as eq. 3.3, judged on other samples",
    "stacked": "H.14: all tasks as one, over-parametrised",
    "variance": "H.15: 1/(2NKσ²); scales with the number of tasks looked at: not an estimate",
    "merged": "H.18: the paper's heuristic for networks, with the range of H.19",
    "gradient": "the gradient form at the non-adaptive solution",
    "bracket": "gradient form and trace form, and a point between them",
}


def run(settings: Settings, recipe: Recipe | None, say: Any) -> dict[str, Any]:
    """The estimate, with bounds and sampling error; keys as the documentation names them."""
    if recipe is None and settings.data not in DRAWN:
        recipe = _recipe_for(settings)
    if recipe is not None:
        return _for_recipe(settings, recipe, say)
    return _for_drawn(settings)


def _recipe_for(settings: Settings) -> Recipe:
    """A recipe for a family of tasks, or for pictures with a strided Conv4."""
    from innerloop.recipes.settings import make_recipe
    from innerloop.tasks.families import FAMILIES

    inner = {"method": settings.method, "steps": settings.steps, "lr": "auto"}
    run_section = {"seed": settings.seed}
    if settings.data in FAMILIES:
        tasks = {"family": settings.data, "shots": settings.shots, "queries": settings.queries}
        return make_recipe({"tasks": tasks, "inner": inner, "run": run_section})
    given = settings.model_fields_set
    tasks = {
        "family": "few-shot",
        "ways": settings.ways,
        "shots": settings.shots if "shots" in given else 1,
        "queries": settings.queries if "queries" in given else 15,
    }
    model = {"kind": "conv4", "pooling": "stride"}
    data = {"name": settings.data}
    inner = {**inner, "loss": "cross-entropy"}
    return make_recipe({"data": data, "tasks": tasks, "model": model, "inner": inner, "run": run_section})


@recipe_words()
def _for_recipe(settings: Settings, recipe: Recipe, say: Any) -> dict[str, Any]:
    from innerloop.advice.rate import warning_for
    from innerloop.advice.rate_record import doubtful_outside
    from innerloop.core.losses import get_loss, is_classification
    from innerloop.experiment.parts import build
    from innerloop.experiment.rates.auto import advice_for, provisional

    tasks = settings.n_tasks if "n_tasks" in settings.model_fields_set else None
    found = advice_for(build(provisional(recipe)), tasks)
    own = recipe.inner.lr
    labels = is_classification(get_loss(recipe.inner.loss))
    warning = warning_for(own, found) if isinstance(own, float) and labels else None
    if warning:
        say(f"warning: {warning}")
    low, high = doubtful_outside(found)
    bounds = {"low": low, "high": high, "meaning": "outside, a user's rate is warned about"}
    return {**found.as_dict(), "bounds": bounds, "warning": warning, "method": recipe.inner.method}


def _for_drawn(settings: Settings) -> dict[str, Any]:
    import innerloop.theory.rate.estimate as forms
    from innerloop.core.losses import get_loss
    from innerloop.theory.rate.moments import interval_of

    kind = "lim" if settings.kind == "auto" else settings.kind
    support = _features(settings, "support", settings.shots)
    limits = forms.bounds(support, settings.loss)
    low, high, interval = limits.low, limits.high, None
    if kind == "lim":
        moments = forms.limit_moments(support, settings.loss)
        alpha, interval = moments.rate, interval_of(moments, seed=settings.seed)
    elif kind == "stacked":
        alpha = forms.stacked_rate(support, settings.loss)
    elif kind == "variance":
        alpha = forms.variance_rate(support, settings.loss)
    elif kind == "merged":
        alpha = forms.merged_rate(support, settings.loss)
        low, high = forms.merged_range(settings.n_tasks, settings.shots, settings.dim, loss=settings.loss)
    else:
        found = _split_kinds(settings, kind, support)
        alpha, interval = found["alpha"], found["interval"]
        low, high = found.get("low", low), found.get("high", high)
    return {
        "alpha": alpha,
        "low": low,
        "high": high,
        "sweep": [alpha],
        "interval": list(interval) if interval else None,
        "bounds": limits._asdict(),
        "kind": kind,
        "convention": get_loss(settings.loss).convention,
        "reasons": [WORDS[kind], "the interval is sampling error only"],
        "tasks": settings.n_tasks,
        **_search(settings, support, kind),
    }


def _split_kinds(settings: Settings, kind: str, support: Tensor) -> dict[str, Any]:
    import torch

    from innerloop.theory.rate.bracket import bracket, gradient_moments, pooled_head
    from innerloop.theory.rate.estimate import split_moments
    from innerloop.theory.rate.moments import interval_of

    query, optima = _features(settings, "query", settings.queries), _optima(settings)
    trace = split_moments(support, query, settings.loss)
    if kind == "split":
        return {"alpha": trace.rate, "interval": interval_of(trace, seed=settings.seed)}
    y_support, y_query = (x @ optima.unsqueeze(-1) for x in (support, query))
    head = pooled_head(torch.cat([support, query], 1), torch.cat([y_support, y_query], 1))
    gradients = gradient_moments(support, query, y_support, y_query, settings.loss, head)
    if kind == "gradient":
        return {"alpha": gradients.rate, "interval": interval_of(gradients, seed=settings.seed)}
    found = bracket(gradients, trace, point="gradient", seed=settings.seed)
    return {"alpha": found.point, "interval": found.interval, "low": found.low, "high": found.high}


def _search(settings: Settings, support: Tensor, kind: str) -> dict[str, Any]:
    """The rate of least training risk at this number of tasks, where that is quick to find."""
    from innerloop.core.losses import rate_factor
    from innerloop.theory.rate.estimate import bounds
    from innerloop.theory.rate.forms import best_rate, task_sums

    if settings.dim > SEARCHED:
        return {}
    query = None if kind == "lim" else _features(settings, "query", settings.queries)
    found = best_rate(task_sums(support, _optima(settings), query), bounds(support).high)
    return {"best": found * rate_factor("mse", settings.loss, settings.shots)}


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


def render(result: dict[str, Any]) -> list[str]:
    """The same for people."""
    lines = [f"inner.lr = {result['alpha']:.4g}   ({result['kind']}; {result['convention']})"]
    word = {"bracket": "bracket", "range": "range to sweep", "sweep": "range to sweep"}.get(
        result["kind"], "between"
    )
    lines.append(f"{word}: {result['low']:.3g} to {result['high']:.3g}")
    if result.get("interval"):
        low, high = result["interval"]
        lines.append(f"sampling error alone (95 %, {result['tasks']} tasks): {low:.4g} to {high:.4g}")
    if result.get("factor"):
        lines.append(f"stated uncertainty: a factor of {result['factor']:g} up and down")
    if len(result["sweep"]) > 1:
        lines.append("try: " + ", ".join(f"{rate:.3g}" for rate in result["sweep"]))
    if "corollary_low" in result["bounds"]:
        held = "holds" if result["bounds"]["corollary_low"] <= result["alpha"] else "FAILS"
        lines.append(f"Corollary 1's lower bound {result['bounds']['corollary_low']:.3g} {held} here")
    if "best" in result:
        lines.append(f"least training risk at this number of tasks, by search: {result['best']:.4g}")
    lines += [*result["reasons"], *([f"warning: {result['warning']}"] if result.get("warning") else [])]
    return lines
