"""One held-out task as a picture: for tasks with one input and one output, what adaptation does to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from innerloop.core.errors import UserError
from innerloop.plots import figure_to_svg, sinusoid_data, sinusoid_figure
from innerloop.plots.sinusoid import SinusoidPicture
from innerloop.report.figures import Picture
from innerloop.report.load import inside
from innerloop.report.words import number

if TYPE_CHECKING:
    from innerloop.recipes.schema import Recipe

POINTS = 200
"""Query points that draw the curves."""


def adapted_picture(run: Path, name: str, episode: int = 0) -> tuple[Picture | None, str]:
    """The first test episode before and after adaptation, or none; then perhaps a sentence that says why.

    The episode is the one that evaluation scores first: it is not chosen for its looks. A page is made of
    foreign runs as well, so nothing is imported that their recipes name.
    """
    from innerloop.experiment.started import ChangedRecipeError
    from innerloop.recipes.trust import UntrustedCodeError
    from innerloop.runs.checkpoints import DamagedCheckpointError

    left_out = "The picture of a held-out task is left out:"
    try:
        data = adapted_data(run, episode)
    except UntrustedCodeError as error:
        return None, f"{left_out} drawing it would import code that the recipe names, {error.named}."
    except (ChangedRecipeError, DamagedCheckpointError) as error:
        return None, f"{left_out} {inside(str(error), run)}"
    except UserError:  # no checkpoint yet, or data that is not here: the page says the rest
        return None, ""
    if data is None:
        return None, ""
    errors = [_mean_square(data["truth"], data[when]) for when in ("before", "after")]
    plural = "" if data["steps"] == 1 else "s"
    words = (
        f"Test episode {episode}, not chosen: mean squared error {number(errors[0], 3)} before and "
        f"{number(errors[1], 3)} after {data['steps']} inner step{plural} on {len(data['x_support'])} points."
    )
    svg = figure_to_svg(sinusoid_figure(data), f"{name}-adapted", "A held-out task", words)
    return Picture("A held-out task", [words], svg), ""


def adapted_data(run: Path, episode: int = 0) -> SinusoidPicture | None:
    """Truth, predictions and support points of a test episode; None unless it maps one number to one.

    Raises:
        UserError: the run cannot be rebuilt, or has no checkpoint yet.
        UntrustedCodeError: its recipe names code from outside.
    """
    from innerloop.experiment.build import build_sampler, for_test
    from innerloop.experiment.evaluation import load_parts, test_steps
    from innerloop.experiment.pictures import IMAGE_FAMILIES
    from innerloop.experiment.run import best_or_last
    from innerloop.experiment.started import recipe_of

    started = recipe_of(run)
    if started.tasks.family in IMAGE_FAMILIES:  # not one number, so no need to open them
        return None
    task = build_sampler(started, "test").episode(episode)
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
