"""One held-out task as a picture: for tasks with one input and one output, what adaptation does to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from innerloop.core.errors import UserError
from innerloop.report.figures import Picture
from innerloop.report.plots.sinusoid import SinusoidPicture, sinusoid_figure
from innerloop.report.plots.svg import figure_to_svg
from innerloop.report.read_run import inside
from innerloop.report.words import number

HeldOut = Callable[[Path], SinusoidPicture | None]
"""Rebuilds the first test task of a run; None unless it maps one number to one. The room above has it."""


def adapted_picture(run: Path, name: str, held_out: HeldOut) -> tuple[Picture | None, str]:
    """The first test episode before and after adaptation, or none; then perhaps a sentence that says why.

    The episode is the one that evaluation scores first: it is not chosen for its looks. A page is made of
    foreign runs as well, so nothing is imported that their recipes name.
    """
    from innerloop.experiment.recipe.library import ChangedRecipeError
    from innerloop.experiment.recipe.trust import UntrustedCodeError
    from innerloop.runs.checkpoints import DamagedCheckpointError

    left_out = "The picture of a held-out task is left out:"
    try:
        data = held_out(run)
    except UntrustedCodeError as error:
        return None, f"{left_out} drawing it would import code that the recipe names, {error.named}."
    except (ChangedRecipeError, DamagedCheckpointError) as error:
        return None, f"{left_out} {inside(str(error), run)}"
    except UserError:  # no checkpoint yet, or data that is not here: the page says the rest
        return None, ""
    if data is None:
        return None, ""
    if not all(map(math.isfinite, [*data["before"], *data["after"]])):
        return None, f"{left_out} its predictions are not finite."
    errors = [_mean_square(data["truth"], data[when]) for when in ("before", "after")]
    plural = "" if data["steps"] == 1 else "s"
    words = (
        f"Test episode 0, not chosen: mean squared error {number(errors[0], 3)} before and "
        f"{number(errors[1], 3)} after {data['steps']} inner step{plural} on {len(data['x_support'])} points."
    )
    svg = figure_to_svg(sinusoid_figure(data), f"{name}-adapted", "A held-out task", words)
    return Picture("A held-out task", [words], svg), ""


def _mean_square(truth: list[float], predicted: list[float]) -> float:
    return sum((a - b) ** 2 for a, b in zip(truth, predicted, strict=True)) / len(truth)
