"""From a recipe to the parts that train it. The only place where configuration meets the library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.losses import get_loss
from innerloop.core.random import generator
from innerloop.core.trees import split_prefix
from innerloop.core.types import Buffers, Loss, Params, Task
from innerloop.experiment.learner import build_learner
from innerloop.experiment.pictures import (
    IMAGE_FAMILIES,
    build_image_sampler,
    largest_ways,
    outputs_needed,
    training_classes,
)
from innerloop.experiment.targets import check_outputs, check_targets, targets_needed
from innerloop.experiment.words import recipe_words
from innerloop.learners import Learner
from innerloop.learners.gradient import RATE_PREFIX
from innerloop.learners.online import online_buffers
from innerloop.nets import Network, load_weights, mlp
from innerloop.nets.factory import BACKBONES, backbone
from innerloop.nets.noise import with_noise, without_noise
from innerloop.nets.weights import load_statistics
from innerloop.objectives import Objective, episodic, erm, multitask, reptile
from innerloop.objectives.mixed_precision import in_bfloat16
from innerloop.objectives.multitask import PREFIX as HEADS
from innerloop.recipes.schema import Recipe
from innerloop.runs.checkpoints import load_checkpoint
from innerloop.runs.directory import is_run
from innerloop.tasks import Sampler, get_family, make_sampler
from innerloop.training import make_optimiser, make_schedule
from innerloop.training.optimisers import MakeOptimiser
from innerloop.training.schedules import Schedule
from innerloop.training.state import group_of

DTYPES = {"float32": torch.float32, "float64": torch.float64}
NOISY = ("resnet12", "resnet12-thin", "wrn-28-10")  # have dropout or DropBlock, which training switches on


class Parts(NamedTuple):
    """What a recipe means, ready to run."""

    network: Network
    loss: Loss
    objective: Objective
    learner_after: Callable[[int], Learner]
    train: Sampler
    validation: Sampler
    test: Sampler
    optimiser: MakeOptimiser
    schedule: Schedule
    params: Params
    buffers: Buffers


@recipe_words()
def build(recipe: Recipe) -> Parts:
    """All parts of a recipe, with freshly drawn parameters.

    Raises:
        UserError: for whatever does not fit together.
    """
    check_device(recipe.run.device)
    samplers = {split: build_sampler(recipe, split) for split in ("train", "validation", "test")}
    example = samplers["train"].episode(0)
    check_targets(recipe, example)
    network = build_network(recipe, example)
    loss = get_loss(recipe.outer.loss or recipe.inner.loss)
    ways = largest_ways(recipe) if recipe.tasks.family in IMAGE_FAMILIES else targets_needed(example)
    learner = build_learner(recipe.inner, network, recipe.inner.steps, ways)
    objective = build_precision(recipe, build_objective(recipe, network, learner, loss))
    optimiser = make_optimiser(recipe.outer.optimiser, recipe.outer.lr, **recipe.outer.options)
    outer = recipe.outer
    schedule = make_schedule(outer.schedule, outer.steps, outer.milestones, outer.factor, outer.warmup)
    params, buffers = draw_params(recipe, network, learner, objective)
    optimiser(params)  # finds bad options before anything is written
    if ":" in recipe.model.kind:  # the first pass compares a module of the user's own with its two parts
        with torch.no_grad():
            network.features(*for_test(params, buffers), example.x_support, "batch")
    return Parts(
        network,
        loss,
        objective,
        lambda steps: build_learner(recipe.inner, network, steps, ways),
        samplers["train"],
        samplers["validation"],
        samplers["test"],
        optimiser,
        schedule,
        params,
        buffers,
    )


def check_device(device: str) -> None:
    """Refuses a device that torch does not have here."""
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        line = (str(error).splitlines() or ["unknown"])[0]
        raise UserError(f"run.device={device} does not work here ({line}): use run.device=cpu.") from None


def build_sampler(recipe: Recipe, split: str) -> Sampler:
    """The stream of training, validation or test tasks.

    Held-out streams have ``eval.seed``, so that runs of different seeds are judged on the same tasks, and
    are never limited to ``n_tasks``.
    """
    tasks, training = recipe.tasks, split == "train"
    if tasks.family in IMAGE_FAMILIES:
        return build_image_sampler(recipe, split, DTYPES[recipe.run.dtype])
    return make_sampler(
        get_family(tasks.family),
        seed=recipe.run.seed if training else recipe.eval.seed,
        split=split,
        shots=tasks.shots if training else recipe.eval.shots or tasks.shots,
        queries=tasks.queries if training else recipe.eval.queries or tasks.queries,
        n_tasks=tasks.n_tasks if training else None,
        resample=tasks.resample,
        noise=tasks.noise,
        dtype=DTYPES[recipe.run.dtype],
        device=recipe.run.device,
        settings=tasks.settings,
        name=tasks.family,
    )


def build_network(recipe: Recipe, example: Task) -> Network:
    """The network, sized to an example task."""
    model, x = recipe.model, example.x_support
    needed = outputs_needed(recipe) if recipe.tasks.family in IMAGE_FAMILIES else targets_needed(example)
    check_outputs(recipe, needed, labels=not example.y_support.is_floating_point())
    outputs = model.outputs or needed
    if model.kind == "mlp":
        inputs = x[0].numel()
        return mlp(
            inputs,
            model.hidden,
            outputs,
            model.activation,
            model.parametrisation,
            model.bias,
            model.weight_var,
        )
    if ":" in model.kind and not model.kind.startswith("timm:"):
        return backbone(model.kind, 0, 0, outputs, model.norm, model.head, **model.settings)
    if x.ndim != 4 or x.shape[-1] != x.shape[-2]:
        if model.kind not in BACKBONES and not model.kind.startswith("timm:"):
            known = ", ".join(["mlp", *BACKBONES])
            hint = did_you_mean(model.kind, ["mlp", *BACKBONES])
            raise UserError(f"unknown model.kind '{model.kind}'{hint}; there are {known}, or your own.")
        raise UserError(
            f"model.kind={model.kind} wants square images, but tasks.family={recipe.tasks.family} gives "
            f"inputs of shape {tuple(x.shape[1:])}: set model.kind=mlp."
        )
    own = {"filters": model.filters, "pooling": model.pooling, "bias": model.bias}
    settings = own if model.kind == "conv4" else model.settings
    return backbone(model.kind, x.shape[1], x.shape[-1], outputs, model.norm, model.head, **settings)


def build_objective(recipe: Recipe, network: Network, learner: Learner, loss: Loss) -> Objective:
    """The objective."""
    outer = recipe.outer
    if outer.objective == "erm":
        return erm(network, loss)
    if outer.objective == "multitask":
        rows = training_classes(recipe) if recipe.tasks.family in IMAGE_FAMILIES else recipe.tasks.n_tasks
        return multitask(network, loss, rows or 1, outer.heads)
    if outer.objective == "reptile":
        return reptile(learner, loss)
    return episodic(learner, loss, recipe.inner.split)


def build_precision(recipe: Recipe, objective: Objective) -> Objective:
    """The objective in bfloat16 if the recipe asks for it."""
    return in_bfloat16(objective, recipe.run.device) if recipe.run.bfloat16 else objective


def draw_params(
    recipe: Recipe, network: Network, learner: Learner, objective: Objective
) -> tuple[Params, Buffers]:
    """The first parameters: drawn from ``run.seed``, or read from ``model.init``."""
    device, dtype = recipe.run.device, DTYPES[recipe.run.dtype]
    params, buffers = network.init(generator(recipe.run.seed, "init"))
    # placed first, so that what is read or set below keeps its full precision
    params = {name: value.to(device, dtype) for name, value in params.items()}
    buffers = {
        name: value.to(device, dtype if value.is_floating_point() else value.dtype)
        for name, value in buffers.items()
    }
    if recipe.model.init is not None:
        given = read_weights(recipe.model.init)
        own, buffers = load_statistics(params, buffers, given, recipe.model.init)
        params = load_weights(params, own, recipe.model.init)
    if recipe.model.kind in NOISY:
        buffers = with_noise(buffers)
    if recipe.inner.online != "off" and recipe.inner.lr != "auto":
        first = params[network.head_names[0]]
        buffers = {**buffers, **online_buffers(recipe.inner.online, recipe.inner.lr, first)}
    return objective.init(learner.init(params), generator(recipe.run.seed, "heads")), buffers


def read_weights(source: str) -> dict[str, Tensor]:
    """The network's weights in a run (its best checkpoint, else its last) or a ``.safetensors`` file."""
    path = Path(source).expanduser()
    if path.is_dir() and is_run(path):
        found = load_checkpoint(path, "best") or load_checkpoint(path, "last")
        if found is None:
            raise UserError(f"model.init={source}: that run has no checkpoint yet.")
        params, buffers = for_test(group_of(found[0], "params"), group_of(found[0], "buffers"))
        # learned rates are the learner's, not the network's
        own = {name: value for name, value in params.items() if not name.startswith(RATE_PREFIX)}
        return {**own, **buffers}
    if path.suffix == ".safetensors" and path.is_file():
        from safetensors.torch import load_file

        return load_file(path)
    raise UserError(f"model.init={source} is neither a run directory nor a .safetensors file.")


def for_test(params: Params, buffers: Buffers) -> tuple[Params, Buffers]:
    """Without what only training uses: the heads of training tasks, and noise."""
    return split_prefix(params, HEADS)[1], without_noise(buffers)
