"""Evaluating by a recipe's protocol, beside what needs no training; runs judged again, and compared."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.files import write_json_new
from innerloop.core.statistics import Interval
from innerloop.core.types import Buffers, Params
from innerloop.evaluation.baselines import Baseline, InitialNetwork, trivial_baselines
from innerloop.evaluation.comparison import Comparison, compare
from innerloop.evaluation.episodes import differences
from innerloop.evaluation.scores import Evaluation
from innerloop.experiment.data import Data
from innerloop.experiment.fitting import by_heads, judge
from innerloop.experiment.learner import test_steps
from innerloop.experiment.loading import load_run
from innerloop.experiment.messages import recipe_words, refuse_not_finite
from innerloop.experiment.parts import Parts, check_tasks
from innerloop.experiment.protocol import episodes_of, head_protocol, label, protocol_of
from innerloop.experiment.recipe.grammar import Items
from innerloop.experiment.recipe.library import look_at
from innerloop.experiment.recipe.protocols import IMAGE_FAMILIES
from innerloop.experiment.recipe.rules import NOTHING, rate_warnings
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.results import AfterSteps, ComparedRuns, Judged
from innerloop.experiment.run_data import check_data, seen_notes
from innerloop.experiment.weights import for_test
from innerloop.nets.hugging_face import is_hugging_face
from innerloop.runs.directory import refuse_links
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
    protocol = protocol_of(recipe, parts.network.norm, used, trained)
    baselines = beside(recipe, parts.data, evaluation, plan, start)
    by_step = [AfterSteps(steps, interval.mean, interval.ci95) for steps, interval in curve]
    judged = keep_evaluation(
        recipe, evaluation, run, parts.data, protocol, baselines, changed, notes, by_step
    )
    refuse_not_finite(recipe, evaluation, {**params, **buffers}, test_steps(recipe), run, judged.file)
    return judged


def keep_evaluation(
    recipe: Recipe,
    evaluation: Evaluation,
    run: Path,
    data: Data,
    protocol: dict[str, Any],
    baselines: list[Baseline],
    changed: Mapping[str, Any] | None,
    notes: Sequence[str] | None,
    by_step: Sequence[AfterSteps] = (),
) -> Judged:
    """Writes ``eval/<protocol>-<n>.json`` of a run, and returns what is in it."""
    judged = Judged(
        score=evaluation.score,
        mean=evaluation.interval.mean,
        ci95=evaluation.interval.ci95,
        episodes=recipe.eval.episodes,
        scores=evaluation.scores,
        protocol=protocol,
        by_step=[*by_step],
        notes=[*(notes or ())],
        file=run / "eval",  # until it has its name
        drawn=episodes_of(recipe),
        not_finite=evaluation.not_finite,
        changed=changed or {},
        baselines=baselines,
        grid=evaluation.grid,
        unconverged=evaluation.unconverged,
    )
    left_out = {"file"} if notes is not None else {"file", "notes"}
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


def compare_runs(run: Path, other: Path, overrides: list[str], *, trust: bool = False) -> ComparedRuns:
    """Judges two runs by the same protocol, and compares them task by task."""
    first, second = (evaluate_run(each, overrides, trust=trust) for each in (run, other))
    return ComparedRuns(first, other, compare_judged(first, second, (str(run), str(other))))


def compare_backbone(
    backbone: str,
    other: Path,
    overrides: list[str],
    *,
    argv: list[str] | None = None,
    trust: bool = False,
) -> ComparedRuns:
    """Judges a backbone in a run of its own on the tasks of another run, and compares the two."""
    from innerloop.experiment.backbone_run import judge_backbone

    own = judge_backbone(backbone, overrides, other, argv=argv)
    both = [item for item in overrides if item.partition(".")[0] in ("data", "tasks", "inner", "eval")]
    comparison = compare_judged(
        own.evaluation, evaluate_run(other, both, trust=trust), (str(own.run), str(other))
    )
    return ComparedRuns(own.evaluation, other, comparison, own.run)


def compare_judged(first: Judged, second: Judged, names: tuple[str, str]) -> Comparison:
    """Which of two runs is better on the episodes that both saw; ``names`` is what to call them."""
    differing = differences(first.drawn, second.drawn) if first.drawn and second.drawn else []
    if first.score != second.score:
        differing = [f"score {first.score} and {second.score}", *differing]
    if differing:
        raise UserError(
            f"{names[0]} and {names[1]} saw other episodes ({', '.join(differing)}): give settings that make "
            "these alike; what is given here holds for both."
        )
    return compare(first, second)


@recipe_words()
def evaluate_run(run: Path, overrides: Items, *, trust: bool = False) -> Judged:
    """Judges a run by its own protocol, or by one changed with ``key=value`` settings.

    ``trust`` says whether code that the run's recipe names may be imported.

    Args:
        run: the run's directory.
        overrides: ``key=value`` settings; none for its own protocol.
        trust: whether code that the run's recipe names may be imported.

    Raises:
        UserError: the pictures of its test split have changed, or its predictions are not finite.
    """
    refuse_links(run)
    if look_at(run).outer.objective == NOTHING:
        from innerloop.experiment.backbone_run import evaluate_backbone_run

        return evaluate_backbone_run(run, overrides, trust=trust)
    loaded = load_run(run, overrides, trust=trust)
    recipe = loaded.parts.recipe
    notes = [*check_data(recipe, loaded.trained, run, ("test",)), *rate_warnings(recipe), *loaded.unread]
    notes += seen_notes(recipe, loaded.trained)
    weights, used = loaded.weights()
    return evaluate_parts(
        loaded.parts, weights, loaded.plan, run, used, loaded.changed, notes, loaded.trained
    )
