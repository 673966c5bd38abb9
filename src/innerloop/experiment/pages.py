"""Pages about runs, with the one picture that needs the run's network."""

from __future__ import annotations

from pathlib import Path

from innerloop.experiment.data import build_data
from innerloop.experiment.learner import test_steps
from innerloop.experiment.loading import load_run
from innerloop.experiment.recipe.picture_fit import with_settings
from innerloop.experiment.weights import for_test
from innerloop.report.page import write_page
from innerloop.report.plots.curves import SinusoidPicture, sinusoid_data


def write_report(runs: list[Path], out: Path | None = None) -> Path:
    """As :func:`innerloop.report.write_page`, with the picture of a held-out task."""
    return write_page(runs, out, adapted_data)


POINTS = 200
"""Query points that draw the curves."""


def adapted_data(run: Path, episode: int = 0) -> SinusoidPicture | None:
    """Truth, predictions and support points of a test episode; None unless it maps one number to one."""
    loaded = load_run(run)
    parts, sizes = loaded.parts, loaded.parts.sizes
    if sizes.labels or sizes.inputs != (1,) or sizes.ways != 1:
        return None
    task = parts.data.test.episode(episode)
    (params, buffers), _ = loaded.weights()
    dense = with_settings(parts.recipe, {"tasks": {"queries": POINTS, "noise": 0.0}})
    grid = build_data(dense).test.episode(episode)
    steps = test_steps(parts.recipe)

    def curve(n: int) -> list[float]:
        """Predictions along the inputs after ``n`` inner steps."""
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
