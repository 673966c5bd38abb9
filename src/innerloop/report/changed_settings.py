"""Which settings of a recipe are not the defaults, and what they are about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from innerloop.report.read_run import flatten

_ABSENT = object()


class Differing(NamedTuple):
    """A setting that differs from the schema's default, where there is one, and what it is about."""

    key: str
    value: Any
    default: Any
    has_default: bool
    about: str


def differing_settings(recipe: Mapping[str, Any]) -> list[Differing]:
    """Settings that differ from the schema's defaults."""
    from innerloop.experiment.recipe.schema import Recipe

    ours, defaults = flatten(recipe), flatten(Recipe.model_validate({}).model_dump())
    about = _descriptions()
    return [
        Differing(key, value, defaults.get(key), key in defaults, about.get(key, ""))
        for key, value in ours.items()
        if key not in ("name", "description", "run.folder") and defaults.get(key, _ABSENT) != value
    ]


def _descriptions() -> dict[str, str]:
    from innerloop.experiment.recipe.schema import Recipe

    words: dict[str, str] = {}
    for section, field in Recipe.model_fields.items():
        for key, inner in getattr(field.annotation, "model_fields", {}).items():
            words[f"{section}.{key}"] = inner.description or ""
    return words
