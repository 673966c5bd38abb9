"""Evaluating by a recipe's protocol, and writing the result into the run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.statistics import Interval
from innerloop.core.types import Buffers, Params
from innerloop.evaluation import Evaluation, evaluate
from innerloop.evaluation.protocol import kind_of
from innerloop.execution import Plan
from innerloop.execution.plan import available_cores, set_intra_op_threads
from innerloop.experiment.build import Parts, build, for_test
from innerloop.experiment.divergence import refuse_not_finite
from innerloop.experiment.episodes import episodes_of
from innerloop.experiment.heads import head_protocol, judge_head
from innerloop.experiment.learner import test_steps
from innerloop.experiment.pictures import IMAGE_FAMILIES
from innerloop.experiment.rate import as_trained
from innerloop.experiment.run_data import test_digest, with_kept_data
from innerloop.recipes.library import read_recipe
from innerloop.recipes.protocols import CHANGED
from innerloop.recipes.schema import Recipe
from innerloop.recipes.started import recipe_of
from innerloop.runs.checkpoints import load_checkpoint
from innerloop.runs.files import write_json_atomic
from innerloop.runs.manifest import now, read_manifest
from innerloop.training.state import TrainState, in_order, state_from


def protocol_of(recipe: Recipe, parts: Parts, weights: str) -> dict[str, Any]:
    """Everything that a reported number depends on besides the training."""
    tasks = recipe.tasks
    pictures = {}
    if tasks.family in IMAGE_FAMILIES:
        pictures = {"data": recipe.data.name, "ways": recipe.eval.ways or tasks.ways}
        pictures["test_classes"] = test_digest(recipe.data)
    return {
        "tasks": tasks.family,
        **pictures,
        "shots": recipe.eval.shots or tasks.shots,
        "queries": recipe.eval.queries or tasks.queries,
        "episodes": recipe.eval.episodes,
        "seed": recipe.eval.seed,
        **_adaptation(recipe),
        "norm": parts.network.norm,
        "kind": kind_of(parts.network.norm),
        "weights": weights,
        "train_seed": recipe.run.seed,
    }


def _adaptation(recipe: Recipe) -> dict[str, Any]:
    """How a task is learned: by the recipe's inner loop, or by a head with its settings."""
    inner = recipe.inner
    if recipe.eval.head == "learner":
        return {
            "method": inner.method,
            "inner_steps": test_steps(recipe),
            "inner_lr": inner.lr,
            "inner_loss": get_loss(inner.loss).convention,
        }
    told = head_protocol(recipe, "running", 1).as_dict()
    settings: tuple[str, ...] = ("C", "normalise", "copies", "lr", "steps")
    own = {name: told[name] for name in settings if name in told}
    return {"method": f"{recipe.eval.head} head", "head": recipe.eval.head, **own}


def evaluate_parts(
    recipe: Recipe,
    parts: Parts,
    weights: tuple[Params, Buffers],
    plan: Plan,
    run: Path,
    used: str,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Scores the weights on the test tasks, writes ``eval/<protocol>-<n>.json``, returns its summary.

    Args:
        recipe: how to evaluate.
        parts: built from it.
        weights: what is evaluated.
        plan: how to run it.
        run: where the file goes.
        used: which weights these are, in words.
        more: further entries of the file, such as the settings that are not the run's own.

    Raises:
        NonFiniteError: predictions of some tasks are not finite; the file is written all the same.
    """
    params, buffers = for_test(*weights)
    episodes = recipe.eval.episodes
    if recipe.eval.head == "learner":
        found, curve = _by_learner(recipe, parts, params, buffers, plan)
    else:
        found, curve = judge_head(recipe, parts.network, params, buffers, "test", episodes, plan), []
    result = {
        "score": found.score,
        found.score: found.interval.mean,
        "mean": found.interval.mean,
        "ci95": found.interval.ci95,
        "episodes": episodes,
        "protocol": protocol_of(recipe, parts, used),
        "drawn": episodes_of(recipe).as_dict(),
        "by_step": [{"steps": n, "mean": i.mean, "ci95": i.ci95} for n, i in curve],
        "not_finite": found.not_finite,
        CHANGED: {},
        **(more or {}),
    }
    if found.unconverged:
        result["unconverged_heads"] = found.unconverged
    path = _next_file(run / "eval", _label(recipe))
    write_json_atomic(path, {**result, "scores": found.scores, "time": now()})
    refuse_not_finite(recipe, found, {**params, **buffers}, test_steps(recipe), run, path)
    return {**result, "file": str(path)}


def _by_learner(
    recipe: Recipe, parts: Parts, params: Params, buffers: Buffers, plan: Plan
) -> tuple[Evaluation, list[tuple[int, Interval]]]:
    """The learner's scores, and its means after fewer steps where ``eval.curve`` asks for them."""
    steps, episodes = test_steps(recipe), recipe.eval.episodes

    def after(n: int) -> Evaluation:
        return evaluate(parts.learner_after(n), params, buffers, parts.test, parts.loss, episodes, plan)

    found = after(steps)
    others = range(steps) if recipe.eval.curve else ([0] if steps else [])
    return found, [(n, after(n).interval) for n in others] + [(steps, found.interval)]


def _label(recipe: Recipe) -> str:
    tasks = recipe.tasks
    images = tasks.family in IMAGE_FAMILIES
    name = f"{Path(recipe.data.name).name}-{recipe.eval.ways or tasks.ways}way" if images else tasks.family
    how = f"{recipe.inner.method}{test_steps(recipe)}" if recipe.eval.head == "learner" else recipe.eval.head
    text = f"{name}-{recipe.eval.shots or tasks.shots}shot-{how}"
    # a leading dash would be read as an option by rm, cat and the like
    return re.sub(r"[^\w.-]+", "-", text).strip("-.")


def _next_file(folder: Path, label: str) -> Path:
    folder.mkdir(exist_ok=True)
    n = 1
    while (folder / f"{label}-{n}.json").exists():
        n += 1
    return folder / f"{label}-{n}.json"


def run_recipe(run: Path, overrides: list[str], *, trust: bool = False) -> tuple[Recipe, Recipe]:
    """A run's recipe changed by ``key=value`` settings, with the split it kept; and as it was trained.

    Args:
        run: its directory.
        overrides: the caller's own settings. Code that they name may be imported.
        trust: whether code that the run's recipe names may be imported as well.
    """
    recipe = as_trained(recipe_of(run, overrides, trust=trust), run)
    trained = as_trained(read_recipe(str(run)), run)  # to compare with, not to build
    return with_kept_data(recipe, trained, run), trained


def load_parts(
    run: Path, overrides: list[str], *, trust: bool = False
) -> tuple[Recipe, Parts, TrainState, Plan]:
    """A trained run's recipe, as :func:`run_recipe` gives it, with parts, state and plan."""
    recipe, _ = run_recipe(run, overrides, trust=trust)
    return recipe, *trained_parts(run, recipe)


def trained_parts(run: Path, recipe: Recipe) -> tuple[Parts, TrainState, Plan]:
    """The parts of a run's recipe, the state it was trained to, and how to execute it."""
    saved = load_checkpoint(run, "last")
    if saved is None:
        raise UserError(f"{run} has no checkpoint yet: `innerloop resume {run}` trains it.")
    # bfloat16 is for training steps: a machine without it can judge what another one trained
    full = recipe.model_copy(update={"run": recipe.run.model_copy(update={"bfloat16": False})})
    parts, state = build(full), state_from(*saved)
    _check_fit(parts.params, state.params, run)
    state = in_order(state, parts.params, parts.buffers)
    recorded = read_manifest(run).get("plan") or {}
    mode = recorded.get("mode", "loop") if recipe.run.execution == "auto" else recipe.run.execution
    plan = Plan(mode, recipe.run.threads or available_cores(), recipe.run.chunk)
    set_intra_op_threads(plan)
    return parts, state, plan


def _check_fit(model: Params, saved: Params, run: Path) -> None:
    """Settings that change the network make its trained weights useless: say so."""
    wrong = [n for n, v in model.items() if n not in saved or saved[n].shape != v.shape]
    wrong = [n for n in wrong if not n.startswith("heads.")]
    if wrong:
        raise UserError(
            f"these settings change the network that {run} trained ({', '.join(wrong[:3])}): "
            "leave model.* and the task's dimensions as they were."
        )
