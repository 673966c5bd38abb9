"""Candidates and how they were judged."""

from __future__ import annotations

from typing import Any, NamedTuple

from innerloop.choose.architectures.space import Space, size_of
from innerloop.choose.pilot.problem import Problem
from innerloop.evaluation.protocol import kind_of


class Described(NamedTuple):
    """A candidate."""

    genotype: Any
    description: str
    parameters: int


class PilotProtocol(NamedTuple):
    """What accuracies of a pilot depend on."""

    data: str
    split: str
    ways: int
    shots: int
    queries: int
    episodes: int
    steps: int
    method: str
    objective: str
    head: str
    norm: str
    kind: str
    train_seed: int
    space: str


def described(space: Space[Any], candidate: Any) -> Described:
    """A candidate of a space."""
    settings = space.settings(candidate, "running")["settings"]
    genotype = settings.get("genotype", settings)
    return Described(genotype, space.describe(candidate), size_of(space, candidate).parameters)


def protocol_of(problem: Problem, steps: int, episodes: int) -> PilotProtocol:
    """How candidates of a problem are judged after so many steps, on so many tasks."""
    recipe = problem.recipe
    return PilotProtocol(
        data=recipe.data.name,
        split="validation",
        ways=problem.ways,
        shots=recipe.eval.shots or recipe.tasks.shots,
        queries=problem.queries,
        episodes=episodes,
        steps=steps,
        method=recipe.inner.method,
        objective=recipe.outer.objective,
        head=recipe.eval.head,
        norm=recipe.model.norm,
        kind=kind_of(recipe.model.norm),
        train_seed=recipe.run.seed,
        space=problem.space.name,
    )
