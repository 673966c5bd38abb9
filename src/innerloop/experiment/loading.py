"""A trained run, loaded. Its network is rebuilt from what the run keeps: no data is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.resources import available_cores
from innerloop.core.types import Buffers, Params
from innerloop.experiment.data import Sizes, build_data, sizes_from
from innerloop.experiment.inner_rate import with_trained_rate
from innerloop.experiment.messages import recipe_words
from innerloop.experiment.parts import Parts, placed
from innerloop.experiment.pictures import largest_ways
from innerloop.experiment.recipe.grammar import Items
from innerloop.experiment.recipe.library import read_recipe, recipe_of
from innerloop.experiment.recipe.picture_fit import with_settings
from innerloop.experiment.recipe.protocols import IMAGE_FAMILIES, changed_settings
from innerloop.experiment.recipe.rules import NOTHING, unread
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe, typed_keys
from innerloop.experiment.run_data import kept_scale, shown_as_trained, shown_words, with_kept_data
from innerloop.learners.objectives.multitask import PREFIX as HEADS
from innerloop.runs.checkpoints import DamagedCheckpointError, load_checkpoint
from innerloop.runs.directory import MANIFEST
from innerloop.runs.manifest import read_manifest
from innerloop.training.execution.plan import Plan
from innerloop.training.state import TrainState, in_order, state_from


class TrainedRun(NamedTuple):
    """A run with its parts and its weights."""

    run: Path
    parts: Parts
    trained: Recipe
    changed: dict[str, Any]
    state: TrainState
    plan: Plan
    unread: list[str]

    def weights(self) -> tuple[tuple[Params, Buffers], str]:
        """The weights that ``eval.weights`` asks for, and what to call them."""
        return best_or_last(self.parts.recipe, self.run, self.state)


@recipe_words()
def load_run(run: Path, items: Items = (), *, trust: bool = False) -> TrainedRun:
    """A run as it was trained, or changed by ``key=value`` settings."""
    recipe = with_trained_rate(recipe_of(run, items, trust=trust), run)
    trained = with_trained_rate(read_recipe(str(run)), run)  # to compare with, not to build
    asked = make_recipe(trained.model_dump(exclude_none=True), items)
    saved = load_checkpoint(run, "last")
    if saved is None and trained.outer.objective == NOTHING:
        raise UserError(
            f"{run} trained nothing, it judged {trained.model.kind}: give --backbone {trained.model.kind} in "
            "its place."
        )
    if saved is None:
        raise UserError(f"{run} has no checkpoint yet: `innerloop resume {run}` trains it.")
    state = state_from(*saved)
    sizes = _sizes(run, recipe, trained)
    recipe, said = _with_pictures(recipe, trained, run, sizes)
    alone = placed(_alone(recipe))
    parts = Parts(alone, build_data(alone, scale=kept_scale(recipe, trained, run)), sizes)
    _check_fit(parts.params, state.params, run)
    return TrainedRun(
        run,
        parts,
        trained,
        changed_settings(asked.model_dump(), trained.model_dump()),
        in_order(state, parts.params, parts.buffers),
        _plan(run, recipe),
        [*unread(asked, sorted(typed_keys(items)), judging=True), *said],
    )


def _with_pictures(recipe: Recipe, trained: Recipe, run: Path, sizes: Sizes) -> tuple[Recipe, list[str]]:
    """The recipe with the split that the run kept, or with other pictures in the run's size and colour."""
    shown = shown_as_trained(recipe, trained, sizes.inputs)
    kept = with_kept_data(shown, trained, run)
    if shown is not recipe and kept is not shown:  # the run's own pictures at another place, as they are
        return with_kept_data(recipe, trained, run), []
    return kept, shown_words(kept, recipe)


def _alone(recipe: Recipe) -> Recipe:
    """Without what only training needs: first weights, a teacher, and bfloat16, which may not be here."""
    return with_settings(
        recipe, {"run": {"bfloat16": False}, "model": {"init": None}, "outer": {"teacher": None}}
    )


def _plan(run: Path, recipe: Recipe) -> Plan:
    recorded = read_manifest(run).get("plan") or {}
    mode = recorded.get("mode", "loop") if recipe.run.execution == "auto" else recipe.run.execution
    return Plan(mode, recipe.run.threads or available_cores(), recipe.run.chunk)


def _sizes(run: Path, recipe: Recipe, trained: Recipe) -> Sizes:
    """What the network was sized to, for tasks of as many classes as the recipe has now."""
    recorded = read_manifest(run).get("sizes")
    try:  # a run that kept none is asked through its data
        sizes = build_data(trained).sizes if recorded is None else sizes_from(recorded)
    except (KeyError, TypeError):
        raise UserError(
            f"{run / MANIFEST}: its 'sizes' are not those of a network. Was it edited by hand?"
        ) from None
    return sizes._replace(ways=largest_ways(recipe)) if trained.tasks.family in IMAGE_FAMILIES else sizes


def _check_fit(model: Params, saved: Params, run: Path) -> None:
    """Settings that change the network make its trained weights useless: say so."""
    wrong = [n for n, v in model.items() if n not in saved or saved[n].shape != v.shape]
    wrong = [n for n in wrong if not n.startswith(HEADS)]
    if wrong:
        raise UserError(
            f"these settings change the network that {run} trained ({', '.join(wrong[:3])}): "
            "leave model.* as it was."
        )


def check_whole(saved: TrainState, like: TrainState, run: Path) -> None:
    """Refuses a checkpoint whose tensors are not those of the network, which no training writes."""
    pairs = ((saved.params, like.params), (saved.buffers, like.buffers))
    wrong = [n for given, needed in pairs for n, v in needed.items() if _unlike(given.get(n), v)]
    wrong += [n for n, v in saved.optimiser.items() if _unfit(v, like.params.get(n.rpartition("/")[0]))]
    if wrong:
        raise DamagedCheckpointError(
            f"a checkpoint of {run} is damaged (its {', '.join(wrong[:3])} are not those of the network): "
            f"train it again with `innerloop train {run}`."
        )


def _unlike(given: Tensor | None, needed: Tensor) -> bool:
    kinds = given is not None and given.is_floating_point() == needed.is_floating_point()
    return given is None or not kinds or given.shape != needed.shape


def _unfit(entry: Tensor, param: Tensor | None) -> bool:
    """Whether an entry of the optimiser is of no parameter, or can be no number for each of its entries."""
    # a count of steps is a single number, and Adafactor keeps sums over rows and over columns
    if param is None:
        return True
    sides = zip(entry.shape, param.shape, strict=False)
    return entry.dim() not in (0, param.dim()) or any(n not in (1, size) for n, size in sides)


def best_or_last(recipe: Recipe, run: Path, state: TrainState) -> tuple[tuple[Params, Buffers], str]:
    """The weights that ``eval.weights`` asks for, and what to call them."""
    if recipe.eval.weights == "best":
        saved = load_checkpoint(run, "best")
        if saved is not None:
            best = state_from(*saved)
            check_whole(best, state, run)
            params = {name: best.params[name].to(value) for name, value in state.params.items()}
            buffers = {name: best.buffers[name].to(value) for name, value in state.buffers.items()}
            return (params, buffers), f"best by validation (step {best.step})"
    return (state.params, state.buffers), f"last (step {state.step})"
