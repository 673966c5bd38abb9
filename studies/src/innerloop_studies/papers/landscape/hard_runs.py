"""Training with hard tasks more often or with more weight, and what it does to test tasks (Landscape, §6).

The runs stand apart from the rows that are made of them, so that they outlive a change of words there
(:func:`innerloop_studies.reproduce.parts.remembered`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from innerloop.data.source import ImageSource
    from innerloop.experiment.recipe.schema import Recipe
    from innerloop.tasks.few_shot import Kind

QUERIES = 10
KINDS = ("hard", "easy", "all")
ARMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "share": {"tasks": {"hard_share": 0.5}},
    "weight": {"outer": {"hard_weight": 5.0}},
}
"""Settings beside those of plain training."""


class Case(NamedTuple):
    """Pictures, and what a task of them is."""

    data: str
    choice: str
    shots: int
    rate: float
    hardest: int
    hardest_test: int


CASES = {
    "alphabets": Case("omniglot", "one-group", 1, 0.4, 5, 4),
    "superclasses": Case("cifar-fs", "any", 5, 0.3, 5, 3),
}
"""Omniglot's tasks are within an alphabet. CIFAR-FS has too few classes of a superclass for that."""


class Budget(NamedTuple):
    """Meta-steps by case, tasks per step, filters, tasks judged per kind."""

    steps: dict[str, int]
    tasks: int
    filters: int
    episodes: int


def case_of(scale: str, name: str) -> Case:
    """The case; at ``smoke`` on the embedded glyphs."""
    return CASES[name]._replace(data="glyphs") if scale == "smoke" else CASES[name]


def recipe_of(scale: str, name: str, arm: str, budget: Budget, seed: int) -> Recipe:
    """How an arm trains: MAML of one step, by Adam."""
    from innerloop.experiment.recipe.settings import make_recipe

    case, own = case_of(scale, name), ARMS[arm]
    tasks = {"family": "few-shot", "choice": case.choice, "shots": case.shots, "queries": QUERIES}
    outer = {"steps": budget.steps[name], "batch": budget.tasks, "lr": 1e-3}
    hardest = {"hardest": case.hardest} if own else {}
    return make_recipe(
        {
            "data": {"name": case.data, "standardise": name == "superclasses"},
            "tasks": {**tasks, **hardest, **own.get("tasks", {})},
            "model": {"kind": "conv4", "filters": budget.filters, "pooling": "stride"},
            "inner": {"method": "maml", "lr": case.rate, "loss": "cross-entropy"},
            "outer": {**outer, **own.get("outer", {})},
            "run": {"seed": seed},
        }
    )


def test_kinds(scale: str, name: str, source: ImageSource, ways: int) -> dict[str, Kind]:
    """Test tasks of hard groups, of the others, and of all as they come."""
    from innerloop.tasks.episodes import Shape
    from innerloop.tasks.few_shot import Kind
    from innerloop.tasks.hard_groups import by_hardness, hardest_groups

    case = case_of(scale, name)
    every = Kind(Shape(ways, case.shots, QUERIES), case.choice, name="all")  # type: ignore[arg-type]
    hard = hardest_groups(source, "test", ways, case.hardest_test)
    return {kind.name: kind for kind in (*by_hardness(every, source, "test", hard, 0.5), every)}


def trained(scale: str, case: str, arm: str, budget: Budget, seed: int) -> dict[str, Any]:
    """One run: per kind of test tasks the accuracy of every one, the same for all arms and seeds."""
    from innerloop.core.random import derive_seed
    from innerloop.evaluation.scores import evaluate
    from innerloop.experiment.fitting import fit_parts
    from innerloop.experiment.parts import Parts
    from innerloop.tasks.few_shot import few_shot_sampler
    from innerloop.training.execution.plan import Plan

    parts = Parts(recipe_of(scale, case, arm, budget, seed))
    data, plan = parts.data, Plan("loop")
    state = fit_parts(parts, plan=plan)
    learner, by_kind = parts.learner_after(1), {}
    for name, kind in test_kinds(scale, case, data.pictures, parts.recipe.tasks.ways).items():
        stream = few_shot_sampler(
            data.pictures,
            "test",
            seed=derive_seed(0, "landscape-hard-share", name),
            kinds=[kind],
            mean=data.scale.mean,
            std=data.scale.std,
        )
        judged = evaluate(learner, state.params, state.buffers, stream, parts.loss, budget.episodes, plan)
        by_kind[name] = judged.scores
    return {"scores": by_kind, "hard groups": list(data.hard_groups)}


def drawn_share(scale: str, case: str, arm: str, budget: Budget, tasks: int) -> float:
    """The share of hard tasks among the first of the training stream, counted by names of classes."""
    from innerloop.experiment.data import build_data

    data = build_data(recipe_of(scale, case, arm, budget, 0))
    source = data.pictures
    assert source.groups is not None
    hard = {
        name
        for name, group in zip(source.class_names, source.groups, strict=True)
        if source.group_names[group] in data.hard_groups
    }
    return sum(set(data.train.files(i)["classes"]) <= hard for i in range(tasks)) / tasks
