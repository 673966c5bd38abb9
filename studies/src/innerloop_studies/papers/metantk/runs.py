"""The trainings behind MetaNTK-NAS' tables: trained as RFS does, the last weights judged on test tasks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from innerloop.experiment.data import build_data
from innerloop.experiment.fitting import fit_parts, judge
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.experiment.sizes import Sizes
from innerloop_studies.papers.metantk.outcomes import Trained
from innerloop_studies.papers.metantk.pictures import TINY, photographs
from innerloop_studies.reproduce.short_runs import plan_for


def trained(recipe: Mapping[str, Any], heads: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """One training; no weights are chosen by validation."""
    wanted = make_recipe(recipe)
    parts, plan = _parts(wanted), plan_for(wanted)
    begun = time.process_time()
    state = fit_parts(parts, plan=plan)
    seconds = time.process_time() - begun
    scores = {}
    for name, settings in heads.items():
        judged = wanted.model_copy(update={"eval": wanted.eval.model_copy(update=dict(settings))})
        changed = _parts(judged, parts.sizes)
        episodes = wanted.eval.episodes
        scores[name] = judge(changed, state.params, state.buffers, "test", episodes, plan).scores
    parameters = sum(value.numel() for value in state.params.values())
    return Trained(seconds, wanted.outer.steps, parameters, scores)._asdict()


def _parts(recipe: Recipe, sizes: Sizes | None = None) -> Parts:
    """What the recipe means; photographs that no catalogue has are handed in."""
    source = photographs() if recipe.data.name == TINY else None
    return Parts(recipe, build_data(recipe, source), sizes)
