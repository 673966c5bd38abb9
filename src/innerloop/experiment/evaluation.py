"""Evaluating by a recipe's protocol, beside what needs no training, and writing the result into the run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.core.files import write_json_new
from innerloop.core.statistics import Interval
from innerloop.core.types import Buffers, Params
from innerloop.evaluation.baselines import Baseline, InitialNetwork, trivial_baselines
from innerloop.evaluation.scores import Evaluation
from innerloop.experiment.data import Data
from innerloop.experiment.fitting import by_heads, judge
from innerloop.experiment.learner import test_steps
from innerloop.experiment.messages import refuse_not_finite
from innerloop.experiment.parts import Parts, check_tasks
from innerloop.experiment.protocol import episodes_of, head_protocol, label, protocol_of
from innerloop.experiment.recipe.protocols import IMAGE_FAMILIES
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.results import AfterSteps, Judged
from innerloop.experiment.weights import for_test
from innerloop.nets.hugging_face import is_hugging_face
from innerloop.runs.manifest import now
from innerloop.training.execution.plan import Plan


def beside(
    recipe: Recipe, data: Data, evaluation: Evaluation, plan: Plan, start: InitialNetwork | None = None
) -> list[Baseline]:
    """The baselines beside an evaluation; none without pictures, or if the recipe wants none."""
    if not wanted(recipe):
        return []
    protocol = head_protocol(recipe, "none", recipe.eval.episodes)
    return trivial_baselines(by_heads(recipe, data, plan), protocol, evaluation, start)


def wanted(recipe: Recipe) -> bool:
    """Whether a recipe's result has baselines beside it."""
    return recipe.tasks.family in IMAGE_FAMILIES and recipe.eval.baselines


def before_training(parts: Parts, params: Params) -> InitialNetwork:
    """The network as it is made, without what a run was started from; one of transformers comes trained."""
    like: Tensor = next(iter(params.values()))
    made = parts.network.init(torch.Generator().manual_seed(parts.recipe.run.seed))
    first, buffers = ({n: v.to(like.device) for n, v in tree.items()} for tree in made)
    first = {n: v.to(like.dtype) if v.is_floating_point() else v for n, v in first.items()}
    name = "pretrained" if is_hugging_face(parts.recipe.model.kind) else "untrained"
    return InitialNetwork(name, parts.network, first, buffers, *parts.data.scale)


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
    about = EvaluationNotes(
        protocol_of(recipe, parts.network.norm, used, trained),
        [AfterSteps(steps, interval.mean, interval.ci95) for steps, interval in curve],
        beside(recipe, parts.data, evaluation, plan, start),
        changed or {},
        notes,
    )
    judged = keep_evaluation(recipe, evaluation, run, about, parts.data)
    refuse_not_finite(recipe, evaluation, {**params, **buffers}, test_steps(recipe), run, judged.file)
    return judged


class EvaluationNotes(NamedTuple):
    """What an evaluation says besides its scores."""

    protocol: dict[str, Any]
    by_step: list[AfterSteps]
    baselines: list[Baseline]
    changed: Mapping[str, Any]
    notes: Sequence[str] | None


def keep_evaluation(
    recipe: Recipe, evaluation: Evaluation, run: Path, about: EvaluationNotes, data: Data
) -> Judged:
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
    path = write_json_new(_names(run / "eval", label(recipe)), content)
    if evaluation.predicted:
        from innerloop.experiment.predictions import keep_predictions

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


def _names(folder: Path, label: str) -> Iterator[Path]:
    """Names for an evaluation, the first that is free to be taken: others may be judging the run now."""
    folder.mkdir(exist_ok=True)
    return (folder / f"{label}-{n}.json" for n in itertools.count(1))
