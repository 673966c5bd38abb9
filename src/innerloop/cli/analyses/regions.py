"""``innerloop analyze regions``: how many linear regions a recipe's network has on its own inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from innerloop.cli.analyses import Analysis, Say
from innerloop.experiment.messages import recipe_words
from innerloop.experiment.recipe.flat import FlatSettings, Readers, When
from innerloop.experiment.recipe.schema import Recipe

if TYPE_CHECKING:
    from innerloop.choose.scores.patterns import RegionCount


class RegionSettings(FlatSettings):
    """Keys of ``analyze regions``. Tasks and network are the recipe's."""

    READERS: ClassVar[Readers] = {
        "repeats": (When("networks that are drawn", lambda _, recipe: _is_drawn(recipe)),),
    }
    inputs: int = Field(1000, ge=2, description="different inputs, of as many training tasks as it takes")
    batch: int = Field(
        100, ge=2, description="inputs per pass; batch normalisation takes its statistics from a pass"
    )
    repeats: int = Field(5, ge=1, description="initialisations, from run.seed on; model.init has one only")


def _is_drawn(recipe: Recipe | None) -> bool:
    return recipe is None or recipe.model.init is None


@recipe_words()
def run(settings: RegionSettings, recipe: Recipe | None, say: Say) -> RegionCount:
    """Distinct patterns at every initialisation, and their mean with an interval."""
    from innerloop.choose.scores.patterns import count_regions, different_inputs
    from innerloop.experiment.inner_rate import provisional
    from innerloop.experiment.parts import build
    from innerloop.experiment.weights import first_weights, for_test

    assert recipe is not None  # or it was unfit
    parts = build(provisional(recipe))
    x = different_inputs(parts.data.train, settings.inputs)
    if len(x) < settings.inputs:
        say(f"the training tasks have {len(x)} different inputs, fewer than inputs={settings.inputs}")
    runs = (
        recipe.run.model_copy(update={"seed": recipe.run.seed + repeat})
        for repeat in range(settings.repeats if _is_drawn(recipe) else 1)
    )
    weights = (for_test(*first_weights(recipe.model_copy(update={"run": run}), parts.model)) for run in runs)
    return count_regions(parts.network, weights, x, settings.batch)


def unfit(_: RegionSettings, recipe: Recipe | None) -> str | None:
    """Without a recipe there is no network."""
    if recipe is not None:
        return None
    return "analyze regions looks at a network: name a recipe, as in `analyze regions sine-maml`."


ANALYSIS = Analysis(RegionSettings, run, unfit=unfit)
