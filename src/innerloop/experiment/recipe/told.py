"""Which episodes an evaluation saw, as its file tells it.

Files of earlier versions have no ``drawn``. What the recipe, the changed settings, the protocol and the
manifest tell stands in for it; what they do not tell is marked, so that it is equal only to what another
earlier file told in the same words.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from innerloop.core.errors import UserError
from innerloop.evaluation.episodes import EARLIER, Episodes
from innerloop.experiment.recipe.judged import IMAGE_FAMILIES, family_asked, pictures_asked
from innerloop.experiment.recipe.protocols import CHANGED, is_own
from innerloop.experiment.recipe.schema import Data, Recipe

DRAWN = "drawn"
"""Entry of an evaluation: the episodes that it saw."""

_OF_PROTOCOL = {
    "tasks": "tasks.family",
    "data": "data.name",
    "ways": "eval.ways",
    "shots": "eval.shots",
    "queries": "eval.queries",
    "episodes": "eval.episodes",
    "seed": "eval.seed",
}


def told_episodes(
    recipe: Mapping[str, Any], evaluation: Mapping[str, Any], manifest: Mapping[str, Any]
) -> Episodes | None:
    """The episodes of an evaluation; None where its file does not tell them."""
    drawn = evaluation.get(DRAWN)
    if isinstance(drawn, Mapping):
        try:
            return Episodes.from_dict(drawn)
        except ValueError:
            return None
    if not isinstance(evaluation.get(CHANGED), Mapping) and not is_own(recipe, evaluation):
        return None  # judged by other settings, of which the protocol names only some
    try:
        judged = Recipe.model_validate(_as_judged(recipe, evaluation))
        trained = Recipe.model_validate(recipe)
        if judged.tasks.family not in IMAGE_FAMILIES:
            return _of_family(judged)
        pictures = _pictures(judged.data, trained.data, evaluation, manifest)
    except (ValidationError, UserError, TypeError, AttributeError):
        return None  # a damaged file, or a family that there is no longer
    if pictures is None:
        return None
    drawn_from = pictures_asked(judged, "test", pictures, None)
    if any(kind.grouped for kind in drawn_from.kinds) and not pictures.startswith(EARLIER):
        return replace(drawn_from, pictures=EARLIER + pictures)  # nobody wrote down the groups of the classes
    return drawn_from


def _as_judged(recipe: Mapping[str, Any], evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe with the settings that an evaluation changed, and what its protocol says."""
    nested = copy.deepcopy(dict(recipe))
    for key, value in (evaluation.get(CHANGED) or {}).items():
        _assign(nested, key, value)
    protocol = evaluation.get("protocol") or {}
    for name, key in _OF_PROTOCOL.items():
        if name in protocol:
            _assign(nested, key, protocol[name])
    scores = evaluation.get("scores")
    if isinstance(scores, list) and scores:
        _assign(nested, "eval.episodes", len(scores))
    return nested


def _assign(nested: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    for part in path:
        nested = nested.setdefault(part, {})
    if value is None:
        nested.pop(last, None)
    else:
        nested[last] = value


def _of_family(judged: Recipe) -> Episodes:
    name, settings = judged.tasks.family, judged.tasks.settings
    if ":" in name:  # code that only a file names is not imported, so its defaults are not known
        return family_asked(judged, "test", name, {**settings, EARLIER: True})
    from innerloop.tasks.families import get_family
    from innerloop.tasks.sampler import full_settings

    return family_asked(judged, "test", name, full_settings(get_family(name), settings))


def _pictures(
    judged: Data, trained: Data, evaluation: Mapping[str, Any], manifest: Mapping[str, Any]
) -> str | None:
    """What stands for the classes and pictures of the test split, or None where nothing does."""
    from innerloop.data.catalogue import EMBEDDED, catalogue

    classes = (evaluation.get("protocol") or {}).get("test_classes")
    if classes:
        converted = judged.size is not None or judged.colour != "auto"
        published = judged.name == EMBEDDED or judged.name in catalogue()
        return str(classes) if published and not converted else f"{EARLIER}{classes}"
    content = (manifest.get("data") or {}).get("content_sha256")
    if not content or judged != trained:
        return None
    return f"{EARLIER}{content}, split {judged.splits or judged.split_file or 'of the pictures'}"
