"""``innerloop analyze landscape``: is MAML worth it? In closed form, or from a recipe's tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from pydantic import Field

from innerloop.cli.analyses import Analysis, Say
from innerloop.experiment.messages import recipe_words
from innerloop.experiment.recipe.flat import FlatSettings, Readers, When
from innerloop.experiment.recipe.rules import Rules
from innerloop.experiment.recipe.schema import Recipe
from innerloop.report.landscape_page import GEOGRAPHY, landscape_page

if TYPE_CHECKING:
    from innerloop.experiment.data import Data
    from innerloop.theory.landscape.features import Step
    from innerloop.theory.landscape.geography import ClosedLandscape
    from innerloop.theory.landscape.permuted import PermutedLandscape
    from innerloop.theory.landscape.tasks import TaskLandscape

    Landscape: TypeAlias = ClosedLandscape | TaskLandscape | PermutedLandscape

_ENVIRONMENT = When("an environment, and a recipe is one already", lambda _, recipe: recipe is None)
_RECIPE = When("the tasks of a recipe, and none is named", lambda _, recipe: recipe is not None)
_SQUARED = When(
    "recipes with a squared error", lambda _, recipe: not recipe.inner.loss.startswith("cross-entropy")
)


def _small_is_hard(s: LandscapeSettings) -> str | None:
    if s.rho_hard <= s.rho_easy:
        return None
    return f"rho_hard={s.rho_hard} exceeds rho_easy={s.rho_easy}: small is hard, exchange them"


class LandscapeSettings(FlatSettings):
    """Keys of ``analyze landscape``: first those of the closed form, then those for a recipe's tasks."""

    RULES: ClassVar[Rules] = (_small_is_hard,)
    READERS: ClassVar[Readers] = {
        **{key: (_ENVIRONMENT,) for key in GEOGRAPHY if key != "inner_shots"},
        **dict.fromkeys(("tasks", "features", "components", "seed"), (_RECIPE,)),
        "samples": (_RECIPE, _SQUARED),
    }
    OF_RECIPES: ClassVar[Mapping[str, str]] = {
        "noise": "tasks.noise",
        **{key: f"tasks.settings.{key}" for key in GEOGRAPHY if key not in ("inner_shots", "noise")},
    }

    dim: int = Field(10, ge=1, description="d, how many inputs a linear task has")
    inner_lr: float | None = Field(None, gt=0, description="α for ½ mean squared error; none is 1/rho_easy")
    shots: int = Field(500, ge=1, description="m, samples of the adaptation step at test")
    inner_shots: int | None = Field(None, ge=1, description="n₂, samples of it in training; none is shots")
    rho_hard: float = Field(0.1, gt=0, description="ρ_H: inputs of hard tasks have covariance ρ_H·I")
    rho_easy: float = Field(0.9, gt=0, description="ρ_E: the same for easy tasks")
    R: float = Field(2.0, ge=0, description="distance of the groups' centres, per coordinate")
    r_hard: float = Field(0.5, gt=0, description="r_H: variance of the hard tasks' optima, per coordinate")
    r_easy: float = Field(0.5, ge=0, description="r_E: the same for easy tasks")
    noise: float = Field(0.1, ge=0, description="ν, standard deviation of the targets' noise")
    hard_share: float = Field(0.5, gt=0, lt=1, description="how often a task is hard")
    tasks: int = Field(200, ge=8, description="with a recipe: how many tasks to look at")
    samples: int | None = Field(None, ge=2, description="with a recipe: per task; none is 10 per feature")
    features: Literal["raw", "affine", "network", "tangent"] = Field(
        "raw",
        description="with a recipe: inputs, inputs and a constant, features of the untrained network, or its "
        "tangent features",
    )
    components: int = Field(16, ge=1, description="with a recipe: directions features are reduced to")
    seed: int = Field(0, ge=0, description="with a recipe: of the network, the directions and the bootstrap")


def run(settings: LandscapeSettings, recipe: Recipe | None, say: Say) -> Landscape:
    """The closed forms of a geography; or, with a recipe, estimates from its tasks."""
    if recipe is not None:
        return _of_recipe(settings, recipe, say)
    from innerloop.theory.landscape.geography import Geography, closed_landscape

    s = settings
    env = Geography(s.dim, s.rho_hard, s.rho_easy, s.R, s.r_hard, s.r_easy, s.hard_share)
    return closed_landscape(env, lr=s.inner_lr, shots=s.shots, inner_shots=s.inner_shots, noise=s.noise)


@recipe_words()
def _of_recipe(settings: LandscapeSettings, recipe: Recipe, say: Say) -> TaskLandscape | PermutedLandscape:
    """Estimates from the training tasks of a recipe."""
    from innerloop.experiment.data import build_data
    from innerloop.experiment.model import build_network, check_targets
    from innerloop.theory.landscape.features import look_at
    from innerloop.theory.landscape.permuted import permuted_task_landscape
    from innerloop.theory.landscape.tasks import task_landscape

    labels = recipe.inner.loss.startswith("cross-entropy")
    data = build_data(recipe if labels else _with_samples(settings, recipe))
    check_targets(recipe, data.sizes.labels)
    batch = data.train.episodes(range(settings.tasks))
    network = build_network(recipe, data.sizes)
    say(f"{settings.tasks} tasks, {settings.features} features")
    view = look_at(batch, network, settings.features, settings.components, settings.seed)
    step = _step(settings, recipe)
    if not labels:
        return task_landscape(view, step, settings.seed)
    return permuted_task_landscape(view, step, _kinds(data, settings))


def _with_samples(settings: LandscapeSettings, recipe: Recipe) -> Recipe:
    """The recipe with as many samples per task as estimates want, half of them for adapting."""
    from innerloop.theory.landscape.tasks import GOOD

    size = settings.samples or int(GOOD) * settings.components
    update = {"shots": max(1, size // 2), "queries": size - max(1, size // 2)}
    return recipe.model_copy(update={"tasks": recipe.tasks.model_copy(update=update)})


def _step(settings: LandscapeSettings, recipe: Recipe) -> Step:
    from innerloop.core.losses import rate_factor
    from innerloop.theory.landscape.features import Step

    shots = settings.shots if "shots" in settings.model_fields_set else recipe.tasks.shots
    step = Step(shots, settings.inner_shots or shots, settings.inner_lr)
    inner = recipe.inner
    if settings.inner_lr is not None or inner.loss.startswith("cross-entropy") or isinstance(inner.lr, str):
        return step
    whose = f"inner.lr={inner.lr:g} of the recipe, for ½ mean squared error"
    return step._replace(lr=inner.lr * rate_factor(inner.loss, "half-mse", shots), whose=whose)


def _kinds(data: Data, settings: LandscapeSettings) -> list[str]:
    files = (data.train.files(number) for number in range(settings.tasks))
    return [str(each.get("kind") or "") if each else "" for each in files]


def unfit(settings: LandscapeSettings, recipe: Recipe | None) -> str | None:
    """Tangent features are derivatives of one output, and labels have one for every class."""
    if settings.features != "tangent" or recipe is None or not recipe.inner.loss.startswith("cross-entropy"):
        return None
    return "features=tangent needs a network with one output: use features=network here."


ANALYSIS = Analysis(LandscapeSettings, run, page=landscape_page, unfit=unfit)
