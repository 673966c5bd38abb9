"""Candidates and how they were judged, as plain data."""

from __future__ import annotations

from typing import Any

from innerloop.evaluation.protocol import kind_of
from innerloop.pilot.problem import Problem
from innerloop.search.space import Space, size_of


def candidate_record(space: Space[Any], candidate: Any) -> dict[str, Any]:
    """A candidate's ``genotype`` (its table for a recipe), ``description`` and ``parameters``."""
    settings = space.settings(candidate, "running")["settings"]
    return {
        "genotype": settings.get("genotype", settings),
        "description": space.describe(candidate),
        "parameters": size_of(space, candidate).parameters,
    }


def protocol_of(problem: Problem, steps: int, episodes: int) -> dict[str, Any]:
    """What accuracies of a pilot depend on."""
    recipe = problem.recipe
    return {
        "data": recipe.data.name,
        "split": "validation",
        "ways": problem.ways,
        "shots": recipe.eval.shots or recipe.tasks.shots,
        "queries": problem.queries,
        "episodes": episodes,
        "steps": steps,
        "method": recipe.inner.method,
        "objective": recipe.outer.objective,
        "head": recipe.eval.head,
        "norm": recipe.model.norm,
        "kind": kind_of(recipe.model.norm),
        "train_seed": recipe.run.seed,
        "space": problem.space.name,
    }
