"""A run's directory: how it begins, and what its manifest says if it did not end well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from innerloop.core.errors import NonFiniteError, fault_message
from innerloop.core.files import write_text_atomic
from innerloop.experiment.data import Data
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import recipe_to_toml
from innerloop.experiment.run_data import data_record, keep_data
from innerloop.experiment.together import remember_run
from innerloop.runs.directory import RECIPE, create_run
from innerloop.runs.manifest import start_manifest, update_manifest
from innerloop.runs.process import sole_writer
from innerloop.runs.progress import Progress, RunLog


@contextmanager
def begun(recipe: Recipe, data: Data, argv: list[str] | None, more: Mapping[str, Any]) -> Iterator[Path]:
    """A new run directory with recipe, manifest and split, which this process alone writes to meanwhile."""
    run = create_run(Path(recipe.run.folder), recipe.name, recipe.run.seed)
    text = recipe_to_toml(recipe)
    with sole_writer(run):
        write_text_atomic(run / RECIPE, text)
        start_manifest(run, argv, text, {"data": data_record(data), "recipe": recipe.model_dump(), **more})
        keep_data(data, run)
        remember_run(run)
        yield run


@contextmanager
def ending(run: Path, log: RunLog, bar: Progress) -> Iterator[None]:
    """Writes into the manifest how a run ended, if it did not end well."""
    try:
        yield
    except KeyboardInterrupt:
        with suppress(OSError):
            update_manifest(run, status="interrupted", reason="interrupted; `innerloop resume` continues it")
            bar.line(f"interrupted: `innerloop resume {run}` continues it")
        raise
    except BaseException as error:
        told = fault_message(error) or str(error)
        reason = (told.splitlines() or [type(error).__name__])[0]
        with suppress(
            OSError
        ):  # on a full disk nothing can be written, and the first error is the one to tell
            # numbers that were not finite would not be the next time either: a sweep need not try again
            update_manifest(run, status="failed", reason=reason, diverged=isinstance(error, NonFiniteError))
            log.line(f"failed: {told}")
        raise
