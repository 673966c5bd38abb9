"""The recipe that a run was started with: its ``recipe.toml``, refused where it is not that one any more."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError
from innerloop.core.files import plain
from innerloop.experiment.recipe.problems import known_settings, show
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe, read_toml, recipe_from_toml
from innerloop.runs.directory import MANIFEST, RECIPE
from innerloop.runs.manifest import read_manifest

_SHOWN = 5
_ABSENT = object()


class ChangedRecipeError(UserError):
    """A run's recipe is not the one it was started with."""


def recipe_of(run: Path, items: Sequence[str] = (), *, trust: bool = False) -> Recipe:
    """The recipe of a run, changed by ``key=value`` settings."""
    _check(run)
    return recipe_from_toml(run / RECIPE, items, trust=trust)


def look_at(run: Path, items: Sequence[str] = ()) -> Recipe:
    """As :func:`recipe_of`, but not to be built: it may name code that nobody trusts."""
    _check(run)
    path = run / RECIPE
    return make_recipe(read_toml(path.read_bytes().decode(errors="replace"), str(path)), items, str(path))


def _check(run: Path) -> None:
    if not (run / RECIPE).is_file():
        raise UserError(f"{run} has no {RECIPE}: it is not a run.")
    check_unchanged(run)


def check_unchanged(run: Path) -> None:
    """Compares ``recipe.toml`` with what the manifest says of it; older manifests may say nothing."""
    if not (run / MANIFEST).is_file():  # killed before it had one: nothing was trained yet
        return
    manifest = read_manifest(run)
    content, expected = (run / RECIPE).read_bytes(), manifest.get("recipe_sha256")
    if expected is None or hashlib.sha256(content).hexdigest() == expected:
        return
    kept = manifest.get("recipe")
    differences = _differences(kept, content) if isinstance(kept, Mapping) else ["its SHA-256 differs"]
    if not differences:  # spaces and comments only
        return
    shown = "; ".join(differences[:_SHOWN])
    more = f"; and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
    raise ChangedRecipeError(
        f"{run / RECIPE} is not the recipe that the run was started with ({shown}{more}): "
        f"put it back, or train the changed one in a new run with `innerloop train {run}`."
    )


def _differences(kept: Mapping[str, Any], content: bytes) -> list[str]:
    try:
        present = make_recipe(read_toml(content.decode(), RECIPE)).model_dump()
    except (UserError, UnicodeDecodeError):
        return ["it can no longer be read"]
    lines = []
    for key in known_settings():
        was, now = _setting(kept, key), _setting(plain(present), key)
        if was is not _ABSENT and was != now:
            lines.append(f"{key} was {show(was)}, now it is {show(now)}")
    return lines


def _setting(recipe: Mapping[str, Any], key: str) -> Any:
    """A setting's value; absent from a recipe that was kept before there was such a setting."""
    value: Any = recipe
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return _ABSENT
        value = value[part]
    return value
