"""``innerloop analyze regions``: how many linear regions a recipe's network has on its own inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from innerloop.core.errors import UserError
from innerloop.experiment.words import recipe_words
from innerloop.recipes.flat import FlatSettings
from innerloop.recipes.reading import Readers, When
from innerloop.recipes.schema import Recipe

if TYPE_CHECKING:
    from torch import Tensor

    from innerloop.tasks.sampler import Sampler

PATIENCE = 100
"""Tasks in a row without a new input after which there are thought to be no more."""


class Settings(FlatSettings):
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
def run(settings: Settings, recipe: Recipe | None, say: Callable[[str], None]) -> dict[str, Any]:
    """Distinct patterns at every initialisation, and their mean with an interval."""
    from innerloop.core.statistics import mean_interval
    from innerloop.experiment.parts import build
    from innerloop.experiment.rates.auto import provisional
    from innerloop.experiment.weights import first_weights, for_test
    from innerloop.search.scores.patterns import linear_regions

    if recipe is None:
        raise UserError(
            "analyze regions looks at a network: name a recipe, as in `analyze regions sine-maml`."
        )
    parts = build(provisional(recipe))
    x = _different_inputs(parts.data.train, settings.inputs)
    if len(x) < settings.inputs:
        say(f"the training tasks have {len(x)} different inputs, fewer than inputs={settings.inputs}")
    passes = x.split(-(-len(x) // -(-len(x) // settings.batch)))  # of nearly equal size
    found = []
    for repeat in range(settings.repeats if _is_drawn(recipe) else 1):
        own = recipe.run.model_copy(update={"seed": recipe.run.seed + repeat})
        weights = first_weights(recipe.model_copy(update={"run": own}), parts.model)
        found.append(linear_regions(parts.network, *for_test(*weights), passes))
    patterns = [int(each.value) for each in found]
    mean = mean_interval(patterns)
    return {
        "regions": mean.mean,
        "ci95": None if math.isnan(mean.ci95) else mean.ci95,
        "patterns": patterns,
        "inputs": len(x),
        "units": found[0].units,
        "saturated": all(count == len(x) for count in patterns),
        "norm": parts.network.norm,
        "protocol": "distinct ReLU patterns over different inputs of the training tasks; mean and 95 % "
        "t-interval over initialisations",
    }


def _different_inputs(tasks: Sampler, wanted: int) -> Tensor:
    """So many inputs of the first tasks, none twice: a copy would lie in the region of the first."""
    import torch

    kept: dict[bytes, Tensor] = {}
    number = last = 0
    while len(kept) < wanted and number - last <= PATIENCE:
        task, before = tasks.episode(number), len(kept)
        for x in torch.cat([task.x_support, task.x_query]):
            kept.setdefault(x.cpu().numpy().tobytes(), x)
        last = number if len(kept) > before else last
        number += 1
    return torch.stack(list(kept.values())[:wanted])


def render(result: dict[str, Any]) -> list[str]:
    """For people."""
    count, inputs = len(result["patterns"]), result["inputs"]
    spread = "" if result["ci95"] is None else f" ± {result['ci95']:.2g} (95 % CI, {count} initialisations)"
    lines = [
        f"{result['regions']:.4g}{spread} linear regions hit by {inputs} different inputs",
        f"{result['units']} ReLUs; by initialisation: {', '.join(map(str, result['patterns']))}",
    ]
    if result["saturated"]:
        lines.append(
            "every input lies in a region of its own, so this counts inputs and says nothing of the network: "
            "a narrower network or more inputs would tell"
        )
    return lines
