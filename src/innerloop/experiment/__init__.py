"""From a recipe to a trained network: training, judging, predicting, and the runs that keep it all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.classify.files import run_backbone as run_backbone
    from innerloop.experiment.experiment import Experiment as Experiment
    from innerloop.experiment.experiment import Run as Run
    from innerloop.experiment.experiment import judge_backbone as judge_backbone
    from innerloop.experiment.experiment import load as load
    from innerloop.experiment.parts import Parts as Parts
    from innerloop.experiment.recipe.library import Shipped as Shipped
    from innerloop.experiment.recipe.library import load_recipe as load_recipe
    from innerloop.experiment.recipe.library import shipped_recipes as shipped_recipes
    from innerloop.experiment.recipe.schema import Recipe as Recipe
    from innerloop.experiment.recipe.settings import make_recipe as make_recipe
    from innerloop.experiment.recipe.settings import recipe_from_toml as recipe_from_toml
    from innerloop.experiment.recipe.settings import recipe_to_toml as recipe_to_toml
    from innerloop.experiment.recipe.settings import shipped_names as shipped_names
    from innerloop.experiment.results import AfterSteps as AfterSteps
    from innerloop.experiment.results import Judged as Judged
    from innerloop.experiment.results import TrainResult as TrainResult
    from innerloop.experiment.resuming import resume as resume
    from innerloop.experiment.run_evaluation import evaluate_run as evaluate_run
    from innerloop.experiment.sweeps.sweep import sweep as sweep
    from innerloop.experiment.sweeps.table import SweepResult as SweepResult
    from innerloop.experiment.sweeps.table import SweepRow as SweepRow
    from innerloop.experiment.training import train as train
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.classify.files": "run_backbone",
            "innerloop.experiment.experiment": "Experiment Run judge_backbone load",
            "innerloop.experiment.results": "AfterSteps Judged TrainResult",
            "innerloop.experiment.parts": "Parts",
            "innerloop.experiment.recipe.library": "Shipped load_recipe shipped_recipes",
            "innerloop.experiment.recipe.schema": "Recipe",
            "innerloop.experiment.recipe.settings": (
                "make_recipe recipe_from_toml recipe_to_toml shipped_names"
            ),
            "innerloop.experiment.run_evaluation": "evaluate_run",
            "innerloop.experiment.resuming": "resume",
            "innerloop.experiment.training": "train",
            "innerloop.experiment.sweeps.sweep": "sweep",
            "innerloop.experiment.sweeps.table": "SweepResult SweepRow",
        },
    )
