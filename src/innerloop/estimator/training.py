"""Training by a classifier's recipe on given pictures."""

from __future__ import annotations

import torch

from innerloop.core.losses import get_loss
from innerloop.core.random import generator
from innerloop.core.types import Buffers, Params
from innerloop.data import ImageSource
from innerloop.data.augment import episode_transform, lee2019
from innerloop.execution import Plan
from innerloop.execution.plan import available_cores, set_intra_op_threads
from innerloop.learners import protonet
from innerloop.nets import Network
from innerloop.objectives import episodic
from innerloop.recipes.schema import Recipe
from innerloop.tasks.episodes import Keys, Shape
from innerloop.tasks.few_shot import Kind, few_shot_sampler
from innerloop.training import fit, initial_state, make_optimiser


def train(source: ImageSource, recipe: Recipe, network: Network) -> tuple[Params, Buffers]:
    """The weights and statistics after training by the recipe on the classes of ``source``."""
    tasks, outer, seed = recipe.tasks, recipe.outer, recipe.run.seed
    augment = recipe.data.augment == "lee2019"
    sampler = few_shot_sampler(
        source,
        "train",
        seed=seed,
        kinds=[Kind(Shape(tasks.ways, tasks.shots, tasks.queries), keys=Keys())],
        transform=episode_transform(seed, lee2019(source.images.shape[1])) if augment else None,
    )
    plan = Plan("threads" if outer.batch > 1 else "loop", available_cores())
    threads = torch.get_num_threads()
    set_intra_op_threads(plan)
    try:
        state = fit(
            episodic(protonet(network, tasks.ways), get_loss(recipe.inner.loss)),
            initial_state(*network.init(generator(seed, "init"))),
            sampler,
            make_optimiser(outer.optimiser, outer.lr),
            steps=outer.steps,
            batch=outer.batch,
            plan=plan,
        )
    finally:
        torch.set_num_threads(threads)  # the process is not ours alone
    return state.params, state.buffers
