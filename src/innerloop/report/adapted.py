"""One held-out task as a picture: for tasks with one input and one output, what adaptation does to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from innerloop.core.errors import UserError
from innerloop.plots import figure_to_svg, sinusoid_data, sinusoid_figure
from innerloop.plots.sinusoid import SinusoidPicture
from innerloop.report.figures import Picture
from innerloop.report.words import number

if TYPE_CHECKING:
    from innerloop.recipes.schema import Recipe

POINTS = 200
"""Query points that draw the curves."""


def adapted_picture(run: Path, name: str, episode: int = 0) -> Picture | None:
    """The first test episode before and after adaptation; None where there is nothing to show.

    The episode is the one that evaluation scores first: it is not chosen for its looks.
    """
    try:
        data = adapted_data(run, episode)
    except UserError:  # no checkpoint yet, or a family that is not installed here: the page says the rest
        return None
    if data is None:
        return None
    errors = [_mean_square(data["truth"], data[when]) for when in ("before", "after")]
    plural = "" if data["steps"] == 1 else "s"
    words = (
        f"Test episode {episode}, not chosen: mean squared error {number(errors[0], 3)} before and "
        f"{number(errors[1], 3)} after {data['steps']} inner step{plural} on {len(data['x_support'])} points."
    )
    svg = figure_to_svg(sinusoid_figure(data), f"{name}-adapted", "A held-out task", words)
    return Picture("A held-out task", [words], svg)


def adapted_data(run: Path, episode: int = 0) -> SinusoidPicture | None:
    """Truth, predictions and support points of a test episode; None unless it maps one number to one.

    Raises:
        UserError: the run cannot be rebuilt, or has no checkpoint yet.
    """
    from innerloop.recipes.build import build_sampler, for_test
    from innerloop.recipes.evaluation import load_parts, test_steps
    from innerloop.recipes.run import best_or_last
    from innerloop.recipes.settings import recipe_from_toml

    task = build_sampler(recipe_from_toml(run / "recipe.toml"), "test").episode(episode)
    if task.x_support.shape[1:] != (1,) or task.y_support.shape[1:] != (1,):
        return None
    recipe, parts, state, _ = load_parts(run, [])
    (params, buffers), _ = best_or_last(recipe, run, state)
    grid = build_sampler(_dense(recipe), "test").episode(episode)
    steps = test_steps(recipe)

    def curve(n: int) -> list[float]:
        learner = parts.learner_after(n)
        adapted = learner.adapt(*for_test(params, buffers), task.x_support, task.y_support)
        return learner.predict(adapted, grid.x_query)[0].detach().flatten().tolist()

    return sinusoid_data(
        grid.x_query.flatten().tolist(),
        grid.y_query.flatten().tolist(),
        curve(0),
        curve(steps),
        task.x_support.flatten().tolist(),
        task.y_support.flatten().tolist(),
        steps,
    )


def _dense(recipe: Recipe) -> Recipe:
    """The same tasks with many noiseless query points: the truth as a curve."""
    return recipe.model_copy(
        update={"tasks": recipe.tasks.model_copy(update={"queries": POINTS, "noise": 0.0})}
    )


def _mean_square(truth: list[float], found: list[float]) -> float:
    return sum((a - b) ** 2 for a, b in zip(truth, found, strict=True)) / len(truth)
