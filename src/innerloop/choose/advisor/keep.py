"""The run directory of an advice: its manifest says what was asked, so that ``resume`` needs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from innerloop.choose.advisor.asked import Asked
from innerloop.choose.advisor.settings import Advise
from innerloop.choose.pilot.keep import still_open
from innerloop.core.errors import UserError
from innerloop.experiment.recipe.settings import make_recipe, recipe_to_toml
from innerloop.experiment.recipe.trust import admit
from innerloop.runs.directory import create_run
from innerloop.runs.manifest import kind_of, start_manifest

KIND = "advise"


def begin(asked: Asked, argv: list[str] | None) -> Path:
    """A new run directory."""
    name = asked.recipe.name if asked.recipe.name.startswith(KIND) else f"{KIND}-{asked.recipe.name}"
    run = create_run(Path(asked.recipe.run.folder), name, asked.recipe.run.seed)
    kept = {
        "source": asked.source,
        "settings": asked.settings.model_dump(),
        "recipe": asked.recipe.model_dump(exclude_none=True),
        "named": asked.named,
    }
    start_manifest(run, argv, recipe_to_toml(asked.recipe), {"kind": KIND, "asked": kept})
    return run


def is_advice(run: Path) -> bool:
    """Whether a run is one of ``innerloop advise``."""
    return kind_of(run) == KIND


def reopened(run: Path, *, trust: bool = False, alone: bool = False) -> Asked:
    """What an interrupted advice was asked for."""
    manifest = still_open(run, alone=alone)
    try:
        kept: dict[str, Any] = manifest["asked"]
        recipe = admit(make_recipe(kept["recipe"]), set(), str(run), trust)
        settings = Advise.model_validate(kept["settings"])
        return Asked(kept["source"], settings, recipe, bool(kept["named"]), [], [])
    except (KeyError, TypeError, ValidationError):
        raise UserError(
            f"{run / 'manifest.json'} does not say what was asked: ask again with `innerloop advise`."
        ) from None
