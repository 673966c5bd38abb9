"""Runs that train nothing: a pretrained backbone, judged by heads on its features as any run is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.classify.backbone_evaluation import evaluate_backbone
from innerloop.classify.backbones import Backbone, open_backbone
from innerloop.core.errors import Problems, UserError
from innerloop.core.resources import available_cores
from innerloop.experiment.data import Data, build_data
from innerloop.experiment.fitting import kept_tasks
from innerloop.experiment.inner_rate import with_trained_rate
from innerloop.experiment.messages import recipe_words
from innerloop.experiment.parts import check_device, placed
from innerloop.experiment.picture_record import KEPT, is_own, own_folder
from innerloop.experiment.pictures import build_kinds
from innerloop.experiment.protocol import head_protocol, protocol_of
from innerloop.experiment.recipe.grammar import Items
from innerloop.experiment.recipe.judging import backbone_recipe
from innerloop.experiment.recipe.library import read_recipe, recipe_of
from innerloop.experiment.recipe.protocols import changed_settings
from innerloop.experiment.recipe.rules import unread
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import typed_keys
from innerloop.experiment.results import Judged, TrainResult
from innerloop.experiment.run_data import check_data, seen_notes, with_kept_data
from innerloop.experiment.run_evaluation import beside, keep_evaluation
from innerloop.experiment.session import finish, new_run, record_end
from innerloop.runs.manifest import read_manifest, update_manifest
from innerloop.runs.progress import Progress as RunProgress
from innerloop.runs.progress import RunLog, TimeLeft
from innerloop.training.execution.plan import Plan

Say = Callable[[str], None]


class BackboneParts(NamedTuple):
    """A recipe that trains nothing, with its backbone and its tasks."""

    recipe: Recipe
    backbone: Backbone
    data: Data


def judge_backbone(
    backbone: str,
    items: Items = (),
    like: Path | None = None,
    *,
    argv: list[str] | None = None,
    progress: bool = True,
) -> TrainResult:
    """Judges a backbone in a run of its own."""
    if like is None:
        recipe = backbone_recipe(backbone, items)
    else:
        trained = with_trained_rate(read_recipe(str(like)), like)
        recipe = backbone_recipe(backbone, items, trained)
        if is_own(recipe.data.name):  # folders grow; the run's test classes are those that it kept
            recipe = with_kept_data(recipe, trained, like)
    notes = unread(recipe, sorted(typed_keys(items)))
    return judge_only(recipe, argv=argv, progress=progress, notes=notes)


@recipe_words()
def judge_only(
    recipe: Recipe, *, argv: list[str] | None = None, progress: bool = True, notes: Sequence[str] = ()
) -> TrainResult:
    """A new run of a recipe that trains nothing: what ``train`` does with ``outer.objective=none``."""
    parts = _built(recipe)
    about = {**parts.backbone.about(), "fingerprint": parts.backbone.fingerprint}
    with new_run(recipe, parts.data, argv, {"device": parts.recipe.run.device, "backbone": about}) as run:
        return _carry_out(parts, run, progress, notes)


def judge_again(run: Path, recipe: Recipe, *, progress: bool = True) -> TrainResult:
    """Goes on with such a run that was interrupted: what is kept of its features is not computed again."""
    return _carry_out(_built(with_kept_data(recipe, recipe, run)), run, progress, ())


@recipe_words()
def evaluate_backbone_run(run: Path, overrides: Items, *, trust: bool = False) -> Judged:
    """Judges the backbone of such a run once more, by another protocol or on other pictures."""
    first = read_recipe(str(run))
    asked = recipe_of(run, overrides, trust=trust)
    if asked.model != first.model or asked.outer.objective != first.outer.objective:
        raise UserError(
            f"{run} judged {first.model.kind}: leave model.* as it was, and judge another one with "
            "--backbone."
        )
    parts = _built(with_kept_data(asked, first, run))
    kept = (read_manifest(run).get("backbone") or {}).get("fingerprint")
    if kept not in (None, parts.backbone.fingerprint):
        raise UserError(
            f"the weights of {first.model.kind} are not those that {run} judged: judge them in a run of "
            f"their own with --backbone {first.model.kind}."
        )
    same = parts.recipe.data.split_file == str(run / KEPT)
    notes = check_data(parts.recipe, first, run, ("test",)) if same else []
    notes += [*unread(asked, sorted(typed_keys(overrides))), *seen_notes(asked, first)]
    changed = changed_settings(asked.model_dump(), first.model_dump())
    say = RunProgress(1, "features", 0, sys.stderr, None, None).line
    return _judged(parts, run, say, notes, changed)


def _built(recipe: Recipe) -> BackboneParts:
    """Backbone and tasks, built now, so that every mistake is found before anything is written."""
    problems, recipe = Problems(), placed(recipe)
    with problems.collect():
        check_device(recipe.run.device)
    with problems.collect():
        backbone = open_backbone(recipe.model.kind, settings=recipe.model.settings)
    data = build_data(recipe)
    with problems.collect():
        data.test  # noqa: B018  (refuses more ways or shots than there are)
    problems.refuse()
    return BackboneParts(recipe, backbone, data)


def _carry_out(parts: BackboneParts, run: Path, show: bool, notes: Sequence[str]) -> TrainResult:
    started, log = time.perf_counter(), RunLog(run / "log.txt")
    update_manifest(run, status="running", diverged=False, ranks=1)
    seen = seen_notes(parts.recipe)
    teller = RunProgress(1, "features", 0, sys.stderr if show else None, log, None)
    teller.line(f"run: {run}")
    teller.line(f"nothing is trained: {parts.backbone.name} is judged as it is")
    for note in (*notes, *seen):
        teller.line(f"warning: {note}")
    with record_end(run, log, teller):
        judged = _judged(parts, run, teller.line, seen or None)
    finish(run)
    return TrainResult(run, 0, judged, None, None, time.perf_counter() - started, [*notes, *seen])


def _judged(
    parts: BackboneParts,
    run: Path,
    say: Say,
    notes: Sequence[str] | None,
    changed: Mapping[str, Any] | None = None,
) -> Judged:
    """Features, heads and what needs no network, in a file of the run."""
    recipe, backbone, data = parts
    plan = Plan("loop", recipe.run.threads or available_cores())
    norm = backbone.network.norm
    evaluation = evaluate_backbone(
        backbone,
        data.pictures,
        head_protocol(recipe, norm, recipe.eval.episodes),
        folder=None if recipe.data.rotations else own_folder(recipe.data.name),
        kinds=build_kinds(recipe, training=False),
        balanced=recipe.tasks.balanced,
        progress=TimeLeft(say),
        device=recipe.run.device,
        plan=plan,
        keep=kept_tasks(recipe)[0],
    )
    weights = "" if backbone.weights == backbone.name else f" ({backbone.weights})"
    protocol = {**protocol_of(recipe, norm, f"{backbone.name}{weights}"), "backbone": backbone.about()}
    baselines = beside(recipe, data, evaluation, plan)
    return keep_evaluation(recipe, evaluation, run, data, protocol, baselines, changed, notes)
