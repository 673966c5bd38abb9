"""Heads on frozen features, from a recipe."""

from __future__ import annotations

from innerloop.core.types import Buffers, Params
from innerloop.evaluation import Evaluation, Protocol, evaluate_head
from innerloop.execution import Plan
from innerloop.experiment.pictures import build_kinds, build_source, scale_of
from innerloop.nets import Network
from innerloop.recipes.schema import Recipe


def head_protocol(recipe: Recipe, norm: str, episodes: int) -> Protocol:
    """The ``eval`` section as a protocol, for a network of this norm policy."""
    shape, wanted = build_kinds(recipe, training=False)[0].shape, recipe.eval
    return Protocol(
        *shape,
        episodes=episodes,
        norm=norm,
        seed=wanted.seed,
        head=wanted.head,
        C=wanted.C,
        normalise=wanted.normalise_features,
        copies=wanted.copies,
        lr=wanted.head_lr,
        steps=wanted.head_steps,
    )


def judge_head(
    recipe: Recipe, network: Network, params: Params, buffers: Buffers, split: str, episodes: int, plan: Plan
) -> Evaluation:
    """Scores ``eval.head`` on the same episodes that a learner would be judged on."""
    source = build_source(recipe)
    mean, std = scale_of(recipe)
    return evaluate_head(
        network,
        params,
        buffers,
        source,
        head_protocol(recipe, network.norm, episodes),
        split,
        kinds=build_kinds(recipe, training=False),
        balanced=recipe.tasks.balanced,
        mean=mean,
        std=std,
        plan=plan,
    )
