"""Judging a pretrained backbone: features as its weights want pictures, heads on the tasks of any run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from innerloop.choose.rates import as_trained
from innerloop.classify.backbones import Backbone, open_backbone
from innerloop.classify.features import TimeLeft, extract
from innerloop.core.errors import Problems, UserError
from innerloop.core.resources import available_cores
from innerloop.data.layouts.layout import Progress, silent
from innerloop.data.source import ImageSource
from innerloop.evaluation.features import Rows
from innerloop.evaluation.frozen import evaluate_features
from innerloop.evaluation.protocol import Protocol, check_protocol
from innerloop.evaluation.scores import Evaluation
from innerloop.experiment.data import Data, build_data
from innerloop.experiment.evaluation import About, beside, keep_evaluation
from innerloop.experiment.fitting import kept_tasks
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
from innerloop.experiment.session import begun, ending
from innerloop.runs.manifest import read_manifest, update_manifest
from innerloop.runs.progress import Progress as RunProgress
from innerloop.runs.progress import RunLog
from innerloop.tasks.few_shot import Kind
from innerloop.training.execution.plan import Plan


def evaluate_backbone(
    backbone: Backbone | str,
    source: ImageSource,
    protocol: Protocol,
    split: str = "test",
    *,
    folder: Path | None = None,
    kinds: Sequence[Kind] | None = None,
    balanced: bool = True,
    cache: bool | str | Path = True,
    progress: Progress = silent,
    device: str = "cpu",
    plan: Plan | None = None,
    keep: int = 0,
) -> Evaluation:
    """Fits heads on a backbone's features, on the episodes that :func:`evaluate_head` has with that seed.

    Every picture that some episode shows is brought to what the backbone's weights were trained on, whatever
    the size and colour it is stored in, and goes through the network once: features are kept on disk.

    Args:
        backbone: from :func:`innerloop.classify.old_features.open_backbone`, or its name.
        source: the pictures.
        protocol: ways, shots, head and so on; its ``norm`` is the backbone's.
        split: which classes.
        folder: where the files of the source lie, to be read in the size that they have; without it, the
            pictures are those of the source.
        kinds: a mixture of kinds of tasks instead of the protocol's one.
        balanced: as in ``few_shot_sampler``.
        cache: whether features are kept, as in :func:`innerloop.classify.old_features.extract`.
        progress: told how many features are computed.
        device: where the network computes.
        plan: how many cores to use; all if omitted.
        keep: first episodes of which the labels that were given are kept.

    Raises:
        UserError: for an unknown backbone or head, or too few pictures.
    """
    opened = open_backbone(backbone) if isinstance(backbone, str) else backbone
    check_protocol(protocol, opened.network.norm)
    threads = None if plan is None else plan.threads
    compute = partial(extract, opened, cache=cache, progress=progress, threads=threads, device=device)

    def embed(rows: Rows) -> Tensor:
        """Features of some rows of the source."""
        given: list[Any] = [
            source.images[row] if folder is None else folder / source.files(row) for row in rows
        ]
        return torch.from_numpy(np.asarray(compute(given).values)).to(device)

    return evaluate_features(
        embed, source, protocol, split, kinds=kinds, balanced=balanced, plan=plan, keep=keep
    )


Say = Callable[[str], None]


class Judge(NamedTuple):
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
        trained = as_trained(read_recipe(str(like)), like)
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
    judge = _built(recipe)
    about = {**judge.backbone.about(), "fingerprint": judge.backbone.fingerprint}
    with begun(recipe, judge.data, argv, {"device": judge.recipe.run.device, "backbone": about}) as run:
        return _carry_out(judge, run, progress, notes)


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
    judge = _built(with_kept_data(asked, first, run))
    kept = (read_manifest(run).get("backbone") or {}).get("fingerprint")
    if kept not in (None, judge.backbone.fingerprint):
        raise UserError(
            f"the weights of {first.model.kind} are not those that {run} judged: judge them in a run of "
            f"their own with --backbone {first.model.kind}."
        )
    same = judge.recipe.data.split_file == str(run / KEPT)
    notes = check_data(judge.recipe, first, run, ("test",)) if same else []
    notes += [*unread(asked, sorted(typed_keys(overrides))), *seen_notes(asked, first)]
    changed = changed_settings(asked.model_dump(), first.model_dump())
    say = RunProgress(1, "features", 0, sys.stderr, None, None).line
    return _judged(judge, run, say, notes, changed)


def _built(recipe: Recipe) -> Judge:
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
    return Judge(recipe, backbone, data)


def _carry_out(judge: Judge, run: Path, show: bool, notes: Sequence[str]) -> TrainResult:
    started, log = time.perf_counter(), RunLog(run / "log.txt")
    update_manifest(run, status="running", diverged=False, ranks=1)
    seen = seen_notes(judge.recipe)
    teller = RunProgress(1, "features", 0, sys.stderr if show else None, log, None)
    teller.line(f"run: {run}")
    teller.line(f"nothing is trained: {judge.backbone.name} is judged as it is")
    for note in (*notes, *seen):
        teller.line(f"warning: {note}")
    with ending(run, log, teller):
        judged = _judged(judge, run, teller.line, seen or None)
    update_manifest(run, status="finished", reason=None)
    return TrainResult(run, 0, judged, None, None, time.perf_counter() - started, [*notes, *seen])


def _judged(
    judge: Judge, run: Path, say: Say, notes: Sequence[str] | None, changed: Mapping[str, Any] | None = None
) -> Judged:
    """Features, heads and what needs no network, in a file of the run."""
    recipe, backbone, data = judge
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
    about = About(protocol, [], beside(recipe, data, evaluation, plan), changed or {}, notes)
    return keep_evaluation(recipe, evaluation, run, about, data)
