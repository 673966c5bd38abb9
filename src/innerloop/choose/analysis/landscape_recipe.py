"""The landscape of a recipe's own tasks: from its settings to what is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from innerloop.choose.analysis import Say
from innerloop.core.losses import rate_factor
from innerloop.experiment.data import Data, build_data
from innerloop.experiment.model import build_network
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.targets import check_targets
from innerloop.experiment.words import recipe_words
from innerloop.theory.estimates.landscape_features import Step, look_at
from innerloop.theory.estimates.landscape_permuted import PermutedLandscape, permuted_task_landscape
from innerloop.theory.estimates.landscape_tasks import GOOD, TaskLandscape, task_landscape

if TYPE_CHECKING:
    from innerloop.choose.analysis.landscape import Settings


@recipe_words()
def from_recipe(settings: Settings, recipe: Recipe, say: Say) -> TaskLandscape | PermutedLandscape:
    """Estimates from the training tasks of a recipe."""
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


def _with_samples(settings: Settings, recipe: Recipe) -> Recipe:
    """The recipe with as many samples per task as estimates want, half of them for adapting."""
    size = settings.samples or int(GOOD) * settings.components
    update = {"shots": max(1, size // 2), "queries": size - max(1, size // 2)}
    return recipe.model_copy(update={"tasks": recipe.tasks.model_copy(update=update)})


def _step(settings: Settings, recipe: Recipe) -> Step:
    shots = settings.shots if "shots" in settings.model_fields_set else recipe.tasks.shots
    step = Step(shots, settings.inner_shots or shots, settings.inner_lr)
    inner = recipe.inner
    if settings.inner_lr is not None or inner.loss.startswith("cross-entropy") or isinstance(inner.lr, str):
        return step
    whose = f"inner.lr={inner.lr:g} of the recipe, for ½ mean squared error"
    return step._replace(lr=inner.lr * rate_factor(inner.loss, "half-mse", shots), whose=whose)


def _kinds(data: Data, settings: Settings) -> list[str]:
    return [_kind(data.train.files(number)) for number in range(settings.tasks)]


def _kind(files: dict[str, Any]) -> str:
    return str(files.get("kind") or "") if files else ""
