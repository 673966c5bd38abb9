"""How every method of Bridge's picture tables trains, at each scale, as recipes.

At ``cpu`` all of them share one network, a strided Conv4 of 64 filters that a core trains on two thousand
pictures a second, and each has as many steps as fit into a few minutes of one core: the shipped recipes
``cifar-fs-…-cpu``. At ``paper`` they are the shipped recipes with the published settings.
"""

from __future__ import annotations

from typing import NamedTuple

from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.recipe.schema import Recipe

WAYS, SMOKE_QUERIES = 5, 2
PENALTY = 0.33
"""Bridge's ℓ₂ penalty on the last layer at test; C is its inverse."""

PENALTIES = (0.0001, 0.001, 0.01, 0.1, PENALTY, 1.0, 3.0)
"""Those of Bridge's Table 5."""


class Work(NamedTuple):
    """One training run."""

    scale: str
    data: str
    method: str
    seed: int
    length: float = 1.0
    batch: int = 0
    normalised: bool = True

    def __str__(self) -> str:
        words = [self.method, "glyphs" if self.scale == "smoke" else self.data, f"seed {self.seed}"]
        words += [f"{self.length:g} of the steps"] * (self.length != 1)
        words += [f"{self.batch} tasks a step"] * bool(self.batch)
        words += ["features as they are"] * (self.method == "MTL" and not self.normalised)
        return ", ".join(words)


class Size(NamedTuple):
    """How much is judged: validations along the way, tasks of each, and test tasks."""

    validations: int
    validation_tasks: int
    tests: int


SIZES = {"smoke": Size(2, 4, 8), "cpu": Size(12, 200, 600), "paper": Size(0, 400, 2000)}
METHODS = ("MAML", "ANIL", "R2D2", "MetaOptNet", "ProtoNet", "RFS", "MTL")
ANY_SHOTS = ("R2D2", "MetaOptNet", "ProtoNet", "RFS", "MTL")
"""Methods whose trained network serves any number of shots; one run is judged on 5 and on 1."""

_NAMES = {"MetaOptNet": "metaoptnet", "RFS": "supervised"}
_SMOKE = (
    *("data.name=glyphs", "model.filters=4", "eval.shots=2", f"eval.queries={SMOKE_QUERIES}"),
    *(f"eval.episodes={SIZES['smoke'].tests}", f"eval.validation_episodes={SIZES['smoke'].validation_tasks}"),
)
_SMOKE_STEPS = 4
_RAMP_TASKS = 40_000
"""Tasks over which DropBlock's rate rises in Bridge's released code."""


def recipe_for(work: Work) -> Recipe:
    """What a run trains and how its validation tasks are judged."""
    if work.scale == "paper":
        return load_recipe(*_published(work))
    name = _shipped("cifar-fs", work.method, "-cpu")  # what other pictures change is set below
    shipped, smoke = load_recipe(name), work.scale == "smoke"
    steps = max(1, round((_SMOKE_STEPS if smoke else shipped.outer.steps) * work.length))
    every = max(1, steps // SIZES[work.scale].validations)
    items = [f"seed={work.seed}", f"outer.steps={steps}", f"eval.every={every}"]
    items += _SMOKE if smoke else [f"data.name={work.data}"]
    if smoke and shipped.tasks.family == "few-shot":
        items += ["tasks.shots=2", f"tasks.queries={SMOKE_QUERIES}"]
    recipe = load_recipe(name, items + _asked(work))
    return recipe.model_copy(update={"name": "bridge-pictures", "description": ""})


def training_pictures(method: str) -> int:
    """Pictures of a training task at ``cpu``."""
    tasks = recipe_for(Work("cpu", "cifar-fs", method, 0)).tasks
    return tasks.ways * (tasks.shots + tasks.queries)


def shots_for(work: Work, recipe: Recipe) -> list[int]:
    """What a run is judged with: the shots of its recipe, and one where the network serves any number."""
    own = recipe.eval.shots or recipe.tasks.shots
    return [own, 1] if work.method in ANY_SHOTS else [own]


def _shipped(data: str, method: str, size: str = "") -> str:
    return f"{data}-{_NAMES.get(method, method.lower())}{size}"


def _asked(work: Work) -> list[str]:
    """Settings of a run that are not its method's own."""
    items = [f"outer.batch={work.batch}"] * bool(work.batch)
    if work.method == "MTL":
        items.append(f"model.last_layer={'normalised' if work.normalised else 'linear'}")
    return items


def _published(work: Work) -> tuple[str, list[str]]:
    """A shipped recipe with the published settings, and what a run changes in it."""
    name = _shipped(work.data, work.method)
    items = [f"seed={work.seed}", "eval.shots=5", f"eval.episodes={SIZES['paper'].tests}", *_asked(work)]
    if work.method in ("MAML", "ANIL"):
        items.append("tasks.shots=5")
    if work.method == "MTL" and work.batch:
        items.append(f"model.settings.ramp={round(_RAMP_TASKS / work.batch)}")
    if work.length != 1:
        items.append(f"outer.steps={max(1, round(load_recipe(name).outer.steps * work.length))}")
    return name, items
