"""How every method of Bridge's picture tables trains, at each scale, as recipes.

At ``cpu`` all of them share one network, a strided Conv4 of 64 filters that a core trains on two thousand
pictures a second, and each has as many steps as fit into a few minutes of one core. At ``paper`` they are
the shipped recipes with the published settings.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from innerloop.recipes.library import load_recipe
from innerloop.recipes.schema import Recipe
from innerloop.recipes.settings import make_recipe

WAYS, SMOKE_QUERIES = 5, 2
PENALTY = 0.33
"""Bridge's ℓ₂ penalty on the last layer at test; C is its inverse."""

PENALTIES = (0.0001, 0.001, 0.01, 0.1, PENALTY, 1.0, 3.0)
"""Those of Bridge's Table 5."""


class Work(NamedTuple):
    """One training run.

    Attributes:
        scale: ``smoke``, ``cpu`` or ``paper``.
        data: ``cifar-fs`` or ``fc100``; the embedded glyphs at ``smoke``.
        method: one of :data:`METHODS`.
        seed: of initialisation and training tasks; test tasks are the same for all.
        length: share of the method's steps.
        batch: tasks per step; the method's own if 0.
        normalised: MTL: features of length one in training; Bridge does so except on FC100.
    """

    scale: str
    data: str
    method: str
    seed: int
    length: float = 1.0
    batch: int = 0
    normalised: bool = True

    def __str__(self) -> str:
        words = [self.method, "glyphs" if self.scale == "smoke" else self.data, f"seed {self.seed}"]
        words += [f"{self.length:g} of the steps"] * (self.length != 1)
        words += [f"{self.batch} tasks a step"] * bool(self.batch)
        words += ["features as they are"] * (self.method == "MTL" and not self.normalised)
        return ", ".join(words)


class Size(NamedTuple):
    """How much is judged: validations along the way, tasks of each, and test tasks."""

    validations: int
    validation_tasks: int
    tests: int


SIZES = {"smoke": Size(2, 4, 8), "cpu": Size(12, 200, 600), "paper": Size(0, 400, 2000)}
METHODS = ("MAML", "ANIL", "R2D2", "MetaOptNet", "ProtoNet", "RFS", "MTL")
ANY_SHOTS = ("R2D2", "MetaOptNet", "ProtoNet", "RFS", "MTL")
"""Methods whose trained network serves any number of shots; one run is judged on 5 and on 1."""

EPISODE: dict[str, Any] = {"family": "few-shot", "ways": WAYS, "shots": 5, "queries": 15}
HEAD: dict[str, Any] = {"head": "logistic", "C": 1 / PENALTY}
CPU: dict[str, dict[str, Any]] = {
    "MAML": {
        "inner": {"method": "maml", "lr": 0.3, "steps": 1},
        "outer": {"steps": 3900, "optimiser": "adam", "lr": 2e-3},
        "model": {"norm": "transductive"},
    },
    "ANIL": {
        "tasks": {**EPISODE, "queries": 10},
        "inner": {"method": "anil", "lr": 0.1, "steps": 5},
        "outer": {"steps": 6000, "optimiser": "adam", "lr": 3e-3},
        "model": {"norm": "transductive"},
    },
    "R2D2": {"inner": {"method": "r2d2"}, "outer": {"steps": 5500, "lr": 3e-2}},
    "MetaOptNet": {
        "inner": {"method": "metaoptnet-svm", "settings": {"steps": 3}},
        "outer": {"steps": 5000, "lr": 1e-2},
    },
    "ProtoNet": {
        "inner": {"method": "protonet"},
        "outer": {"steps": 5000, "optimiser": "adam", "lr": 3e-3},
    },
    "RFS": {
        "tasks": {"family": "supervised", "minibatch": 64},
        "outer": {"objective": "erm", "steps": 9000, "lr": 1e-2},
        "eval": HEAD,
    },
    "MTL": {
        "tasks": {**EPISODE, "queries": 5},
        "outer": {"objective": "multitask", "heads": "released", "steps": 10_000, "lr": 1e-2},
        "eval": HEAD,
    },
}
"""What is a method's own at ``cpu``; the rest is :func:`_cpu`'s."""


def recipe_for(work: Work) -> Recipe:
    """What a run trains and how its validation tasks are judged."""
    if work.scale == "paper":
        return load_recipe(*_published(work))
    size, own = SIZES[work.scale], CPU[work.method]
    outer = {"batch": 1, "optimiser": "radam", "schedule": "cosine", "clip": 10.0, **own["outer"]}
    steps = max(1, round((4 if work.scale == "smoke" else outer["steps"]) * work.length))
    outer |= {"steps": steps, "batch": work.batch or outer["batch"]}
    model = {**_network(work.scale), **own.get("model", {})}
    if work.method == "MTL":
        model["last_layer"] = _last_layer(work)
    tasks = own.get("tasks", EPISODE)
    if work.scale == "smoke" and tasks["family"] == "few-shot":
        tasks = {**tasks, "shots": 2, "queries": SMOKE_QUERIES}
    sections: dict[str, Any] = {
        "name": "bridge-pictures",
        "data": {"name": "glyphs" if work.scale == "smoke" else work.data, "standardise": True},
        "tasks": tasks,
        "model": model,
        "inner": {"method": "protonet", "loss": "cross-entropy", **own.get("inner", {})},
        "outer": outer,
        "eval": {**_judging(size, steps), **own.get("eval", {})},
        "run": {"seed": work.seed, "threads": 1},
    }
    return make_recipe(sections, fresh=True)


def shots_for(work: Work, recipe: Recipe) -> list[int]:
    """What a run is judged with: the shots of its recipe, and one where the network serves any number."""
    own = recipe.eval.shots or recipe.tasks.shots
    return [own, 1] if work.method in ANY_SHOTS else [own]


def _last_layer(work: Work) -> str:
    return "normalised" if work.normalised else "linear"


def _network(scale: str) -> dict[str, Any]:
    filters = 4 if scale == "smoke" else 64
    return {"kind": "conv4", "filters": filters, "pooling": "stride", "norm": "running"}


def _judging(size: Size, steps: int) -> dict[str, Any]:
    shape = {"ways": WAYS, "shots": 5, "queries": 15}
    if size == SIZES["smoke"]:
        shape |= {"shots": 2, "queries": SMOKE_QUERIES}
    return {
        **shape,
        "episodes": size.tests,
        "validation_episodes": size.validation_tasks,
        "every": max(1, steps // size.validations),
        "curve": False,
    }


def _published(work: Work) -> tuple[str, list[str]]:
    """A shipped recipe with the published settings, and what a run changes in it."""
    name = {"MetaOptNet": "metaoptnet", "RFS": "supervised"}.get(work.method, work.method.lower())
    items = [f"seed={work.seed}", "eval.shots=5", f"eval.episodes={SIZES['paper'].tests}"]
    if work.method in ("MAML", "ANIL"):
        items.append("tasks.shots=5")
    if work.batch:
        items.append(f"outer.batch={work.batch}")
    if work.method == "MTL":
        items.append(f"model.last_layer={_last_layer(work)}")
    recipe = f"{work.data}-{name}"
    if work.length != 1:
        items.append(f"outer.steps={max(1, round(load_recipe(recipe).outer.steps * work.length))}")
    return recipe, items
