"""The runs of AdaptLR's Figure 12: a network trained at one rate, judged at many."""

from __future__ import annotations

from typing import Any

from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe
from innerloop_studies.papers.adaptlr.bernacchia import JUDGED, LOSS, QUADRATIC, TASKS
from innerloop_studies.reproduce.short_runs import fitted, judged

RATES = (-0.01, -0.003, -0.001, 0.0, 0.001, 0.003, 0.01, 0.03)


def recipe_for(rate: float, steps: int, episodes: int) -> Recipe:
    """Bernacchia's quadratic tasks, a two-layer net of 60 units, five inner steps."""
    return make_recipe(
        {
            "name": "adaptlr-fig12",
            **QUADRATIC,
            "inner": {"method": "maml", "lr": rate, "steps": 5, "test_steps": 5, "loss": LOSS},
            "outer": {"steps": steps, "batch": TASKS, "clip": 10.0},
            "eval": {"episodes": episodes, **JUDGED},
        }
    )


def trained(rate: float, steps: int, episodes: int) -> dict[str, Any]:
    """Scores on test tasks at every test rate, as plain data, and the mean without any inner step."""
    network = fitted(recipe_for(rate, steps, episodes))
    scores = [judged(network, rate=other)._asdict() for other in RATES]
    return {"scores": scores, "unadapted": judged(network, steps=0).mean}
