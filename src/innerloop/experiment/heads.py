"""Heads on frozen features, from a recipe."""

from __future__ import annotations

from innerloop.evaluation.grid import PENALTIES
from innerloop.evaluation.protocol import Protocol
from innerloop.experiment.pictures import build_kinds
from innerloop.experiment.recipe.schema import Recipe


def head_protocol(recipe: Recipe, norm: str, episodes: int) -> Protocol:
    """The ``eval`` section as a protocol, for a network of this norm policy."""
    kind, wanted = build_kinds(recipe, training=False)[0], recipe.eval
    return Protocol(
        kind.ways,
        kind.shots,
        kind.queries,
        episodes=episodes,
        norm=norm,
        seed=wanted.seed,
        head=wanted.head,
        C=wanted.C,
        normalise=wanted.normalise_features,
        copies=wanted.copies,
        lr=wanted.head_lr,
        steps=wanted.head_steps,
        grid=tuple(wanted.C_grid) or (PENALTIES if wanted.ensemble else ()),
        ensemble=wanted.ensemble,
    )
