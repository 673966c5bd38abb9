"""What MetaNTK-NAS' tables search, train and judge, at each scale.

At ``paper`` these are the published settings on mini- and tiered-ImageNet. At ``cpu`` they are five cells of
8 channels on CIFAR-FS, so that a search takes ten minutes of one core and a training eight.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe
from innerloop_studies.papers.metantk.pictures import TINY

WAYS, SMOKE_QUERIES, SIDE = 5, 2, 32


class Case(NamedTuple):
    """One independent run: search, training, test."""

    scale: str
    data: str
    method: str
    seed: int
    cells: int = 5

    def __str__(self) -> str:
        stacked = "" if self.method == "RFS" else f"{self.cells} cells, "
        return f"{self.method}, {self.data}, {stacked}seed {self.seed}"


class Search(NamedTuple):
    """A search of :data:`innerloop.choose.architectures.METHODS`, and its settings."""

    method: str
    settings: Mapping[str, Any]


SEARCHES: dict[str, Search] = {
    "MetaNTK-NAS": Search("published", {"kernel": "metantk"}),
    "TE-NAS": Search("published", {"kernel": "ntk"}),
    "Regions": Search("published", {"kernel": "none"}),
    "Random": Search("random", {"keep": 1}),
    "Largest": Search("shortlist", {"names": ["parameters", "flops"], "pool": 30, "keep": 1, "repeats": 1}),
    "NASWOT": Search("shortlist", {"names": ["naswot"], "pool": 30, "keep": 1, "repeats": 3}),
}
"""The first four are the paper's (Table 2). The others are ours: of 30 random cells, the largest, and the
best by a score that has nothing to do with kernels. A search has to beat them to be worth its time."""

ANIL: dict[str, dict[str, Any]] = {
    "mini-imagenet": {"kernel": "metantk-anil", "time": 1.0, "ridge": 1e-5},
    "tiered-imagenet": {"kernel": "metantk-anil"},
}
"""MetaNTK-NAS with 8 cells (appendix E); with 5 cells it takes MAML's kernel, and no limit of time."""

PRUNED: dict[str, dict[str, Any]] = {
    "smoke": {"repeats": 1, "data": "round", "operators": ["conv_3x3", "skip_connect"]},
    "cpu": {"repeats": 1, "data": "round"},
    "paper": {},
}
"""What searches by pruning have at each scale. Common draws for a round of candidates halve the time."""

CHANNELS = {"smoke": 2, "cpu": 8, "paper": 48}
SEEDS = {"smoke": 1, "cpu": 3, "paper": 3}
CROPS = {"smoke": 30, "cpu": 1000, "paper": 3000}

SVC, LOGISTIC = "svc", "logistic"
HEADS: dict[tuple[str, int], dict[str, dict[str, Any]]] = {
    ("mini-imagenet", 5): {"1": {"head": SVC, "C": 0.2}, "5": {"head": LOGISTIC, "C": 0.6}},
    ("mini-imagenet", 8): {"1": {"head": SVC, "C": 0.35}, "5": {"head": LOGISTIC, "C": 0.4}},
    ("tiered-imagenet", 5): {"1": {"head": SVC, "C": 0.75}, "5": {"head": LOGISTIC, "C": 0.8}},
    ("tiered-imagenet", 8): {"1": {"head": LOGISTIC, "C": 0.95}, "5": {"head": LOGISTIC, "C": 0.5}},
}
"""Appendix E, by shots. Elsewhere than there, those of mini-ImageNet with 5 cells."""


def heads_of(case: Case) -> dict[str, dict[str, Any]]:
    """How a trained network is judged, by shots, as settings of ``eval``."""
    heads = HEADS.get((case.data, case.cells), HEADS["mini-imagenet", 5])
    shots = {"1": 1, "2": 2} if case.scale == "smoke" else {"1": 1, "5": 5}
    return {name: {**own, "shots": n} for (name, n), own in zip(shots.items(), heads.values(), strict=True)}


def search_of(case: Case) -> dict[str, Any] | None:
    """All that the case's search depends on, as plain data; None if nothing is searched."""
    if case.method not in SEARCHES:
        return None
    method, own = SEARCHES[case.method]
    settings = dict(own)
    if case.method == "MetaNTK-NAS" and case.cells == 8:
        settings |= ANIL[case.data]
    if method == "published":
        settings |= PRUNED[case.scale]
    elif case.scale == "smoke" and method == "shortlist":
        settings |= {"pool": 3, "repeats": 1}
    return {
        "data": case.data,
        "side": 12 if case.scale == "smoke" and case.data != TINY else SIDE,
        "cells": _cells(case),
        "channels": CHANNELS[case.scale],
        "crops": CROPS[case.scale],
        "method": method,
        "settings": settings,
        "seed": case.seed,
    }


def _cells(case: Case) -> int:
    return 2 if case.scale == "smoke" else case.cells


def recipe_of(case: Case, genotype: Any) -> dict[str, Any]:
    """How the case is trained, as plain data."""
    made = _smoke(case) if case.scale == "smoke" else _shipped(case)
    recipe = made.model_dump()
    if case.method != "RFS":
        recipe["model"]["settings"] = {**recipe["model"]["settings"], "genotype": genotype}
    return make_recipe(recipe).model_dump()


def _shipped(case: Case) -> Recipe:
    seed = f"seed={case.seed}"
    if case.scale == "paper":
        if case.method == "RFS":
            return load_recipe(f"{case.data}-supervised", [seed])
        return load_recipe(f"{case.data}-cells" + ("-8" if case.cells == 8 else ""), [seed])
    if case.method == "RFS":  # as long as a network of cells, which is fewer steps
        one_core = ["tasks.minibatch=32", "outer.batch=1", "outer.steps=1500", "outer.warmup=100"]
        judged = ["eval.weights=last", "run.execution=loop", "run.threads=1"]
        return load_recipe("cifar-fs-supervised-thin", [seed, *one_core, *judged])
    return load_recipe("cifar-fs-cells-cpu", [seed])


def _smoke(case: Case) -> Recipe:
    cells = {"kind": "cells", "settings": {"cells": _cells(case), "channels": CHANNELS["smoke"]}}
    network = {"kind": "conv4", "filters": 2} if case.method == "RFS" else cells
    sections: dict[str, Any] = {
        "name": "metantk-nas",
        "data": {"name": case.data, "standardise": True},
        "tasks": {"family": "supervised", "minibatch": 8},
        "model": {**network, "norm": "running"},
        "inner": {"method": "protonet", "loss": "cross-entropy"},
        "outer": {"objective": "erm", "steps": 3, "batch": 1, "optimiser": "sgd", "lr": 0.05},
        "eval": {"episodes": 6, "ways": WAYS, "queries": SMOKE_QUERIES, "head": LOGISTIC, "weights": "last"},
        "run": {"seed": case.seed, "threads": 1},
    }
    return make_recipe(sections)
