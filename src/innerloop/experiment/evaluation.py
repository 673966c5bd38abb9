"""Evaluating by a recipe's protocol, and writing the result into the run."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.core.errors import UserError
from innerloop.core.files import write_json_new
from innerloop.core.losses import get_loss
from innerloop.core.statistics import Interval
from innerloop.core.types import Buffers, Params
from innerloop.evaluation.baselines import Baseline
from innerloop.evaluation.protocol import kind_of
from innerloop.evaluation.scores import Evaluation
from innerloop.experiment.beside import before_training, beside, wanted
from innerloop.experiment.data import Data, check_inputs
from innerloop.experiment.divergence import refuse_not_finite
from innerloop.experiment.episodes import episodes_of
from innerloop.experiment.fitting import judge
from innerloop.experiment.heads import head_protocol
from innerloop.experiment.judged import AfterSteps, Judged
from innerloop.experiment.learner import test_steps
from innerloop.experiment.parts import Parts
from innerloop.experiment.pictures import IMAGE_FAMILIES, build_kinds
from innerloop.experiment.predictions import keep_predictions
from innerloop.experiment.pretrained import seen_word
from innerloop.experiment.recipe.protocols import refuse_mixed_ways, shapes_asked
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.run_data import test_digest
from innerloop.experiment.weights import for_test
from innerloop.learners.table import uses_head
from innerloop.runs.manifest import now
from innerloop.training.execution.plan import Plan


def protocol_of(recipe: Recipe, norm: str, weights: str, trained: Recipe | None = None) -> dict[str, Any]:
    """Everything that a reported number depends on besides the training."""
    tasks = recipe.tasks
    pictures = {}
    if tasks.family in IMAGE_FAMILIES:
        pictures = {"data": recipe.data.name, "test_classes": test_digest(recipe.data)}
    return {
        "tasks": tasks.family,
        **pictures,
        **shapes_asked(recipe),
        "episodes": recipe.eval.episodes,
        "seed": recipe.eval.seed,
        **_adaptation(recipe),
        "norm": norm,
        "kind": kind_of(norm),
        "weights": weights,
        "train_seed": recipe.run.seed,
        **seen_word(recipe, trained),
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
            **({"head_start": inner.head_start} if inner.head_start != "learned" else {}),
            **({"label_orders": recipe.eval.label_orders} if recipe.eval.label_orders > 1 else {}),
        }
    told = head_protocol(recipe, "running", 1).as_dict()
    settings: tuple[str, ...] = ("C", "normalise", "copies", "lr", "steps", "grid", "ensemble")
    own = {name: told[name] for name in settings if name in told}
    return {"method": f"{recipe.eval.head} head", "head": recipe.eval.head, **own}


def evaluate_parts(
    parts: Parts,
    weights: tuple[Params, Buffers],
    plan: Plan,
    run: Path,
    used: str,
    changed: Mapping[str, Any] | None = None,
    notes: Sequence[str] | None = None,
    trained: Recipe | None = None,
) -> Judged:
    """Scores the weights on the test tasks, writes ``eval/<protocol>-<n>.json``, returns what is in it."""
    recipe, (params, buffers) = parts.recipe, for_test(*weights)
    check_tasks(parts, str(run))
    evaluation = judge(parts, params, buffers, "test", recipe.eval.episodes, plan)
    curve = _curve(parts, params, buffers, plan)
    if recipe.eval.head == "learner":
        curve.append((test_steps(recipe), evaluation.interval))
    start = before_training(parts, params) if wanted(recipe) else None
    about = About(
        protocol_of(recipe, parts.network.norm, used, trained),
        [AfterSteps(steps, interval.mean, interval.ci95) for steps, interval in curve],
        beside(recipe, parts.data, evaluation, plan, start),
        changed or {},
        notes,
    )
    judged = keep_evaluation(recipe, evaluation, run, about, parts.data)
    refuse_not_finite(recipe, evaluation, {**params, **buffers}, test_steps(recipe), run, judged.file)
    return judged


class About(NamedTuple):
    """What an evaluation says besides its scores."""

    protocol: dict[str, Any]
    by_step: list[AfterSteps]
    baselines: list[Baseline]
    changed: Mapping[str, Any]
    notes: Sequence[str] | None


def keep_evaluation(recipe: Recipe, evaluation: Evaluation, run: Path, about: About, data: Data) -> Judged:
    """Writes ``eval/<protocol>-<n>.json`` of a run, and returns what is in it."""
    judged = Judged(
        score=evaluation.score,
        mean=evaluation.interval.mean,
        ci95=evaluation.interval.ci95,
        episodes=recipe.eval.episodes,
        scores=evaluation.scores,
        protocol=about.protocol,
        by_step=about.by_step,
        notes=[*(about.notes or ())],
        file=run / "eval",  # until it has its name
        drawn=episodes_of(recipe),
        not_finite=evaluation.not_finite,
        changed=about.changed,
        baselines=about.baselines,
        grid=evaluation.grid,
        unconverged=evaluation.unconverged,
    )
    left_out = {"file"} if about.notes is not None else {"file", "notes"}
    content = {name: value for name, value in judged.as_dict().items() if name not in left_out}
    content |= {"scores": evaluation.scores, "time": now()}
    path = write_json_new(_names(run / "eval", _label(recipe)), content)
    if evaluation.predicted:
        keep_predictions(run, path, recipe, data, evaluation.predicted)
    return judged._replace(file=path)


def _curve(parts: Parts, params: Params, buffers: Buffers, plan: Plan) -> list[tuple[int, Interval]]:
    """The learner's means after fewer steps: all of them if ``eval.curve`` asks for them, else after none."""
    recipe = parts.recipe
    steps, episodes = test_steps(recipe), recipe.eval.episodes
    if recipe.eval.head != "learner":
        return []
    fewer = range(steps) if recipe.eval.curve else range(min(steps, 1))
    return [(n, judge(parts, params, buffers, "test", episodes, plan, n).interval) for n in fewer]


def check_tasks(parts: Parts, whose: str) -> None:
    """Refuses test tasks that the network cannot take, or that have more classes than its head tells apart.

    A head that is not used is not asked: any number of classes goes with ``eval.head`` and with prototypes.
    """
    recipe = parts.recipe
    check_inputs(parts.data, parts.sizes, whose)
    refuse_mixed_ways(recipe, training=False)
    if recipe.eval.head != "learner" or not uses_head(recipe.inner.method):
        return
    if recipe.tasks.family in IMAGE_FAMILIES:
        outputs = recipe.model.outputs or parts.sizes.outputs
        ways = max(kind.ways for kind in build_kinds(recipe, training=False))
        if ways > outputs:
            raise UserError(
                f"{whose} tells {outputs} classes apart, and these tasks have {ways}: set "
                f"eval.ways={outputs}, or fit a head for every task with eval.head=logistic."
            )


def _label(recipe: Recipe) -> str:
    tasks, shape = recipe.tasks, shapes_asked(recipe)
    name = Path(recipe.data.name).name if tasks.family in IMAGE_FAMILIES else tasks.family
    if "shares" in shape:
        name += "-mixture"
    else:
        name += f"-{shape['ways']}way" if "ways" in shape else ""
        name += f"-{shape['shots']}shot"
    how = f"{recipe.inner.method}{test_steps(recipe)}" if recipe.eval.head == "learner" else recipe.eval.head
    # a leading dash would be read as an option by rm, cat and the like
    return re.sub(r"[^\w.-]+", "-", f"{name}-{how}").strip("-.")


def _names(folder: Path, label: str) -> Iterator[Path]:
    """Names for an evaluation, the first that is free to be taken: others may be judging the run now."""
    folder.mkdir(exist_ok=True)
    return (folder / f"{label}-{n}.json" for n in itertools.count(1))
