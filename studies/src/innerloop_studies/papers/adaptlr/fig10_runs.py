"""The runs of AdaptLR's Figure 10: one-step MAML on two families at the rates of a grid."""

from __future__ import annotations

from typing import Any, NamedTuple

from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe
from innerloop_studies.papers.adaptlr.bernacchia import JUDGED, LOSS, QUADRATIC, TASKS
from innerloop_studies.reproduce.short_runs import fitted, judged


class Case(NamedTuple):
    """A family with its network, how it is judged, and the rates to try."""

    settings: dict[str, Any]
    judged: dict[str, Any]
    batch: int
    loss: str
    grid: tuple[float, ...]

    @property
    def shots(self) -> int:
        """Samples that a task adapts to in training: the K of H.18."""
        return int(self.settings["tasks"]["shots"])


CASES = {
    # a rate under ½ · mean is twice that under the mean: the same steps are tried in both
    "(a) quadratic, 1-60-1": Case(QUADRATIC, JUDGED, TASKS, LOSS, (0.002, 0.006, 0.02, 0.06, 0.2, 0.6)),
    "(b) sine, 1-40-40-1": Case(
        {
            "tasks": {"family": "sine", "shots": 10, "queries": 10},
            "model": {"hidden": [40, 40], "weight_var": 1.0},
        },
        {},
        25,
        "mse",
        (0.001, 0.003, 0.01, 0.03, 0.1, 0.3),
    ),
}


def recipe_for(case: str, rate: float, steps: int, episodes: int) -> Recipe:
    """One-step MAML."""
    settings, judged_on, batch, loss, _ = CASES[case]
    return make_recipe(
        {
            "name": "adaptlr-fig10",
            **settings,
            "inner": {"method": "maml", "lr": rate, "steps": 1, "loss": loss},
            "outer": {"steps": steps, "batch": batch, "clip": 10.0},
            "eval": {"episodes": episodes, **judged_on},
        }
    )


def scored(case: str, rate: float, steps: int, episodes: int) -> dict[str, Any]:
    """The score on test tasks of a network trained at a rate, as plain data."""
    return judged(fitted(recipe_for(case, rate, steps, episodes)))._asdict()
