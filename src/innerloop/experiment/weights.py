"""Weights of a recipe: drawn, read from files, and made ready for judging."""

from __future__ import annotations

from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.paths import user_path
from innerloop.core.random import generator
from innerloop.core.tensors import read_tensors
from innerloop.core.trees import split_prefix
from innerloop.core.types import Buffers, Params
from innerloop.experiment.data import DTYPES
from innerloop.experiment.model import Model
from innerloop.experiment.pretrained import INIT, pretrained_weights
from innerloop.experiment.recipe.schema import Recipe
from innerloop.learners.base import is_own
from innerloop.learners.objectives.multitask import PREFIX as HEADS
from innerloop.nets.noise import with_noise, without_noise
from innerloop.nets.weights import load_statistics, load_weights
from innerloop.runs.checkpoints import load_checkpoint
from innerloop.runs.directory import is_run
from innerloop.training.state import group_of


def first_weights(recipe: Recipe, model: Model) -> tuple[Params, Buffers]:
    """The first parameters and statistics: drawn from ``run.seed``, or read from ``model.init``."""
    network = model.network
    device, dtype = recipe.run.device, DTYPES[recipe.run.dtype]
    params, buffers = network.init(generator(recipe.run.seed, "init"))
    # placed first, so that what is read or set below keeps its full precision
    params = {name: value.to(device, dtype) for name, value in params.items()}
    buffers = {
        name: value.to(device, dtype if value.is_floating_point() else value.dtype)
        for name, value in buffers.items()
    }
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
