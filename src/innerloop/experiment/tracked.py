"""How a run is known to the tracker that its recipe asks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from innerloop.experiment.judged import Judged
from innerloop.experiment.recipe.schema import Recipe
from innerloop.runs.manifest import read_manifest, update_manifest
from innerloop.runs.tracking import NO_TRACKER, Tracked


def tracked(recipe: Recipe, run: Path, say: Callable[[str], None]) -> Tracked | None:
    """The run as a tracker knows it, None without one.

    The manifest keeps the name, so that a resumed run goes on under it, wherever its directory is by then.
    """
    by, project = recipe.run.track, recipe.run.project
    if by == NO_TRACKER:
        return None
    before = read_manifest(run).get("tracked")
    known = before or {"by": by, "project": project, "name": f"{run.parent.name}-{run.name}"}
    if before is None:
        update_manifest(run, tracked=known)
    return Tracked(by, project, str(known["name"]), recipe.model_dump(), run, before is not None, say)


def final_scores(evaluation: Judged, step: int) -> dict[str, float]:
    """What a tracker is told of the test: the score and its interval."""
    return {"step": step, f"test/{evaluation.score}": evaluation.mean, "test/ci95": evaluation.ci95}
