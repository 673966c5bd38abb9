"""Weights of a recipe: drawn, read from files, or published; those of its teacher; and ready for judging."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.paths import user_path
from innerloop.core.random import generator
from innerloop.core.tensors import read_tensors
from innerloop.core.trees import split_prefix
from innerloop.core.types import Buffers, Params
from innerloop.experiment.data import DTYPES, Data, Sizes, sizes_from
from innerloop.experiment.model import Model, build_network
from innerloop.experiment.picture_record import KEPT, read_kept
from innerloop.experiment.recipe.library import look_at
from innerloop.experiment.recipe.picture_fit import with_settings
from innerloop.experiment.recipe.protocols import IMAGE_FAMILIES
from innerloop.experiment.recipe.rules import INIT
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.trust import foreign_code
from innerloop.learners.base import is_own
from innerloop.learners.objectives.distillation import Teacher, teacher_of
from innerloop.learners.objectives.multitask import PREFIX as HEADS
from innerloop.nets.noise import with_noise, without_noise
from innerloop.nets.weights import load_statistics, load_weights
from innerloop.runs.checkpoints import load_checkpoint
from innerloop.runs.directory import is_run
from innerloop.runs.manifest import read_manifest
from innerloop.training.state import group_of


def first_weights(recipe: Recipe, model: Model) -> tuple[Params, Buffers]:
    """The first parameters and statistics: drawn from ``run.seed``, or read from ``model.init``."""
    network = model.network
    device, dtype = recipe.run.device, DTYPES[recipe.run.dtype]
    params, buffers = network.init(generator(recipe.run.seed, "init"))
    # placed first, so that what is read or set below keeps its full precision
    params, buffers = (_placed(tree, device, dtype) for tree in (params, buffers))
    if recipe.model.init is not None:
        if recipe.model.init == INIT:
            given = pretrained_weights(recipe.model.kind, params, network.head_names)
        else:
            given = read_weights(recipe.model.init)
        own, buffers = load_statistics(params, buffers, given, recipe.model.init)
        params = load_weights(params, own, recipe.model.init)
    if network.noise:
        buffers = with_noise(buffers)
    buffers = model.learner.init_buffers(params, buffers)
    return model.objective.init(model.learner.init(params), generator(recipe.run.seed, "heads")), buffers


def read_weights(source: str) -> dict[str, Tensor]:
    """The network's weights in a run (its best checkpoint, else its last) or a ``.safetensors`` file."""
    path = user_path(source)
    if path.is_dir() and is_run(path):
        saved = load_checkpoint(path, "best") or load_checkpoint(path, "last")
        if saved is None:
            raise UserError(f"model.init={source}: that run has no checkpoint yet.")
        params, buffers = for_test(group_of(saved.tensors, "params"), group_of(saved.tensors, "buffers"))
        # learned rates and the like are the learner's, not the network's
        return {name: value for name, value in {**params, **buffers}.items() if not is_own(name)}
    if path.suffix == ".safetensors" and path.is_file():
        return read_tensors(path)
    raise UserError(f"model.init={source} is neither a run directory nor a .safetensors file, nor '{INIT}'.")


def for_test(params: Params, buffers: Buffers) -> tuple[Params, Buffers]:
    """Without what only training uses: the heads of training tasks, and noise."""
    return split_prefix(params, HEADS)[1], without_noise(buffers)


def load_teacher(recipe: Recipe, sizes: Sizes, data: Data) -> Teacher | None:
    """The teacher of a recipe; None where it names none, or has an objective that does not read it."""
    if recipe.outer.teacher is None or recipe.outer.objective != "erm":
        return None
    run = user_path(recipe.outer.teacher)
    taught, theirs = _finished(run)
    taught = _with_our_code(taught, recipe, run)
    _check_sizes(theirs, sizes, run)
    _check_classes(run, data)
    params, buffers = _weights(taught, run, recipe)
    return teacher_of(build_network(taught, theirs), params, buffers)


def _finished(run: Path) -> tuple[Recipe, Sizes]:
    """The recipe of a run that is finished, and what its network was sized to."""
    if not (run.is_dir() and is_run(run)):
        raise UserError(
            f"outer.teacher={run} is not a run: give the directory of a finished run, as `innerloop train` "
            "prints it."
        )
    manifest = read_manifest(run)
    if manifest.get("status") != "finished":
        raise UserError(f"outer.teacher={run} is not finished: `innerloop resume {run}` first.")
    taught = look_at(run)
    if taught.outer.objective != "erm" or "sizes" not in manifest:
        raise UserError(
            f"outer.teacher={run} was trained with outer.objective={taught.outer.objective}, whose last "
            "layer is not one classifier over all classes: give a run with outer.objective=erm."
        )
    return taught, sizes_from(manifest["sizes"])


def _with_our_code(taught: Recipe, recipe: Recipe, run: Path) -> Recipe:
    """A file alone never decides what is imported: only code that the recipe itself names."""
    ours = foreign_code(recipe)
    strange = {
        key: name
        for key, name in foreign_code(taught).items()
        if key.startswith("model.") and ours.get(key) != name
    }
    if strange:
        key, name = next(iter(strange.items()))
        raise UserError(
            f"outer.teacher={run} names code from outside, {key}={name!r}, which this recipe does not: give "
            "a teacher with the same model.kind, or one of innerloop's own networks."
        )
    if taught.model.kind != recipe.model.kind:
        return taught
    return with_settings(taught, {"model": {"kind": recipe.model.kind}})


def _check_sizes(theirs: Sizes, ours: Sizes, run: Path) -> None:
    if theirs.inputs != ours.inputs:
        raise UserError(
            f"outer.teacher={run} takes inputs of shape {theirs.inputs}, and these have {ours.inputs}: give "
            "a teacher that was trained on such inputs."
        )
    if theirs.outputs != ours.outputs:
        raise UserError(
            f"outer.teacher={run} tells {theirs.outputs} classes apart, and {ours.outputs} are trained here: "
            "give a teacher that was trained on the same classes."
        )


def _check_classes(run: Path, data: Data) -> None:
    """Outputs mean the same only if the training classes are the same, in the same order."""
    kept = read_kept(run / KEPT)
    if kept is None or data.recipe.tasks.family not in IMAGE_FAMILIES:
        return
    source = data.pictures
    ours = [source.class_names[c] for c in source.splits["train"]]
    theirs = list(kept["splits"].get("train", ()))
    other = next((pair for pair in zip(theirs, ours, strict=False) if pair[0] != pair[1]), None)
    if other:
        raise UserError(
            f"outer.teacher={run} was trained on other classes ('{other[0]}' where '{other[1]}' stands "
            "here): give a teacher that was trained on the same pictures and splits."
        )


def _weights(taught: Recipe, run: Path, recipe: Recipe) -> tuple[Params, Buffers]:
    """The weights that the teacher itself is judged with, where the recipe runs."""
    tags = ("best", "last") if taught.eval.weights == "best" else ("last",)
    saved = next(filter(None, (load_checkpoint(run, tag) for tag in tags)), None)
    if saved is None:
        raise UserError(f"outer.teacher={run} has no checkpoint: give a run that has been trained.")
    groups = (group_of(saved.tensors, group) for group in ("params", "buffers"))
    return for_test(*(_placed(tree, recipe.run.device, DTYPES[recipe.run.dtype]) for tree in groups))


def _placed(tensors: Params, device: str, dtype: torch.dtype) -> Params:
    return {n: v.to(device, dtype if v.is_floating_point() else v.dtype) for n, v in tensors.items()}


def pretrained_weights(kind: str, params: Params, head_names: Sequence[str]) -> dict[str, Tensor]:
    """Published weights and statistics; the last layer as it was drawn if it tells other classes apart."""
    if ":" in kind:
        raise UserError(f"model.kind={kind} brings its own weights: leave out model.init={INIT}.")
    from innerloop.nets.pretrained import published_weights

    given = published_weights(kind)
    other = any(given[name].shape != params[name].shape for name in head_names)
    return {**given, **{name: params[name] for name in head_names}} if other else given
