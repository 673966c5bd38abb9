"""Recipes that start from published weights: their scale, their first parameters, and what they have seen."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.types import Params
from innerloop.experiment.recipe.judging import NOTHING
from innerloop.experiment.recipe.protocols import IMAGE_FAMILIES
from innerloop.experiment.recipe.schema import Recipe
from innerloop.nets.hugging_face import PREFIX, is_hugging_face, read_preprocessing
from innerloop.nets.pretrained import PRETRAINED, UNKNOWN, overlap, published_weights, seen_before

INIT = "pretrained"
"""The value of ``model.init`` that means published weights."""


def own_scale(kind: str) -> tuple[list[float], list[float]] | None:
    """Mean and deviation that a network wants pictures in 0…1 standardised by; None if it has no wish.

    >>> own_scale("conv4") is None, own_scale("efficientnet-lite0")[0][0] == 127 / 255
    (True, True)
    """
    if kind in PRETRAINED:
        return PRETRAINED[kind].preprocessing.scale()
    if is_hugging_face(kind):
        return read_preprocessing(kind.removeprefix(PREFIX)).scale()
    return None


def check_channels(kind: str, shape: Sequence[int]) -> None:
    """Refuses grey pictures for a network whose weights and scale are for three channels."""
    if (kind in PRETRAINED or is_hugging_face(kind)) and len(shape) == 3 and shape[0] != 3:
        raise UserError(f"model.kind={kind} wants pictures in three channels: set data.colour=rgb.")


def pretrained_weights(kind: str, params: Params, head_names: Sequence[str]) -> dict[str, Tensor]:
    """Published weights and statistics; the last layer as it was drawn if it tells other classes apart."""
    if ":" in kind:
        raise UserError(f"model.kind={kind} brings its own weights: leave out model.init={INIT}.")
    given = published_weights(kind)
    other = any(given[name].shape != params[name].shape for name in head_names)
    return {**given, **{name: params[name] for name in head_names}} if other else given


def seen_notes(recipe: Recipe, trained: Recipe | None = None) -> list[str]:
    """A sentence where pretrained weights have seen the classes that they are judged on."""
    seen = _seen_by(trained or recipe) if recipe.tasks.family in IMAGE_FAMILIES else None
    told = overlap(seen, recipe.data.name) if seen else None
    return [told] if told else []


def seen_word(recipe: Recipe, trained: Recipe | None = None) -> dict[str, str]:
    """The same as an entry of a protocol, for tables: ``yes`` or ``perhaps``; nothing where there is none."""
    seen = _seen_by(trained or recipe) if recipe.tasks.family in IMAGE_FAMILIES else None
    word = seen_before(seen, recipe.data.name) if seen else "no"
    return {} if word == "no" else {"seen": word}


def _seen_by(made: Recipe) -> str | None:
    """What a network had seen before its run; None if it started from nothing that others trained."""
    kind, start = made.model.kind, INIT if made.outer.objective == NOTHING else made.model.init
    if is_hugging_face(kind):
        return UNKNOWN
    return PRETRAINED[kind].seen if start == INIT and kind in PRETRAINED else None
