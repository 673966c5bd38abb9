"""Searches, trainings and tests of MetaNTK-NAS' tables, at each scale; finished ones are kept."""

import io
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from innerloop.choose import PictureDraws, cell_space, network_size, search
from innerloop.choose.architectures.measure import read_measurements
from innerloop.data import ImageSource, from_arrays, open_source
from innerloop.data.hashing import file_hash
from innerloop.experiment import Parts, Recipe, load_recipe, make_recipe
from innerloop.experiment.data import build_data
from innerloop.experiment.fitting import fit_parts
from innerloop.nets.cells.genotype import EDGES, KINDS, Choices, to_table
from innerloop_studies.papers.training import own_file, plan_for, rescored
from innerloop_studies.reproduce import torch_version
from innerloop_studies.reproduce.parts import FOLDER, compute_parts, digest
from innerloop_studies.reproduce.rows import Say

VERSION = 1
TINY = "tiny-imagenet"
PHOTO_SIDE = 84
CLASSES, EACH = 15, 8


def packed() -> Path:
    """The file of photographs: ``INNERLOOP_TINY_IMAGENET``, or in the folder ``INNERLOOP_TEST_DATA``."""
    missing, holds = "there are no Tiny-ImageNet photographs", "jpeg (bytes), offsets and labels"
    return own_file("INNERLOOP_TINY_IMAGENET", "tiny_imagenet_60.npz", missing, holds)


def photographs(classes: int = CLASSES, each: int = EACH) -> ImageSource:
    """A few classes of Tiny-ImageNet, enlarged to 84 pixels, a third of them for each split."""
    with np.load(packed()) as table:
        jpeg, offsets, labels = (table[name] for name in ("jpeg", "offsets", "labels"))
    pictures, names = [], []
    for number in np.unique(labels)[:classes]:
        for row in np.flatnonzero(labels == number)[:each]:
            data = io.BytesIO(jpeg[offsets[row] : offsets[row + 1]].tobytes())
            picture = Image.open(data, formats=["JPEG"]).convert("RGB")
            pictures.append(np.asarray(picture.resize((PHOTO_SIDE, PHOTO_SIDE), Image.Resampling.BILINEAR)))
            names.append(f"class{number:03d}")
    order, third = sorted(set(names)), len(set(names)) // 3
    splits = {"train": order[: -2 * third], "validation": order[-2 * third : -third], "test": order[-third:]}
    return from_arrays(np.stack(pictures), names, splits=splits, name=TINY)


class CaseRun(NamedTuple):
    """Search, training and test of one case."""

    genotype: Any
    search: dict[str, Any] | None
    training: dict[str, Any]

    @property
    def shots(self) -> list[str]:
        """The numbers of shots that it was judged with."""
        return list(self.training["scores"])

    def accuracy(self, shots: str) -> float:
        """In percent."""
        return 100 * fmean(self.training["scores"][shots])


WAYS, SMOKE_QUERIES, SIDE = 5, 2, 32


class SearchCase(NamedTuple):
    """One independent run: search, training, test."""

    scale: str
    data: str
    method: str
    seed: int
    cells: int = 5

    def __str__(self) -> str:
        stacked = "" if self.method == "RFS" else f"{self.cells} cells, "
        return f"{self.method}, {self.data}, {stacked}seed {self.seed}"


SEARCHES: dict[str, tuple[str, dict[str, Any]]] = {
    "MetaNTK-NAS": ("published", {"kernel": "metantk"}),
    "TE-NAS": ("published", {"kernel": "ntk"}),
    "Regions": ("published", {"kernel": "none"}),
    "Random": ("random", {"keep": 1}),
    "Largest": ("shortlist", {"names": ["parameters", "flops"], "pool": 30, "keep": 1, "repeats": 1}),
    "NASWOT": ("shortlist", {"names": ["naswot"], "pool": 30, "keep": 1, "repeats": 3}),
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

HEADS: dict[tuple[str, int], dict[str, dict[str, Any]]] = {
    ("mini-imagenet", 5): {"1": {"head": "svc", "C": 0.2}, "5": {"head": "logistic", "C": 0.6}},
    ("mini-imagenet", 8): {"1": {"head": "svc", "C": 0.35}, "5": {"head": "logistic", "C": 0.4}},
    ("tiered-imagenet", 5): {"1": {"head": "svc", "C": 0.75}, "5": {"head": "logistic", "C": 0.8}},
    ("tiered-imagenet", 8): {"1": {"head": "logistic", "C": 0.95}, "5": {"head": "logistic", "C": 0.5}},
}
"""Appendix E, by shots. Elsewhere than there, those of mini-ImageNet with 5 cells."""


def heads_of(case: SearchCase) -> dict[str, dict[str, Any]]:
    """How a trained network is judged, by shots, as settings of ``eval``."""
    heads = HEADS.get((case.data, case.cells), HEADS["mini-imagenet", 5])
    shots = {"1": 1, "2": 2} if case.scale == "smoke" else {"1": 1, "5": 5}
    return {name: {**own, "shots": n} for (name, n), own in zip(shots.items(), heads.values(), strict=True)}


def search_of(case: SearchCase) -> dict[str, Any] | None:
    """All that the case's search depends on, as plain data; None if nothing is searched."""
    if case.method not in SEARCHES:
        return None
    method, settings = SEARCHES[case.method]
    if case.method == "MetaNTK-NAS" and case.cells == 8:
        settings = settings | ANIL[case.data]
    if method == "published":
        settings = settings | PRUNED[case.scale]
    elif case.scale == "smoke" and method == "shortlist":
        settings = settings | {"pool": 3, "repeats": 1}
    side = 12 if case.scale == "smoke" and case.data != TINY else SIDE
    size = {"side": side, "cells": _cells(case), "channels": CHANNELS[case.scale], "crops": CROPS[case.scale]}
    return {"data": case.data, **size, "method": method, "settings": settings, "seed": case.seed}


def _cells(case: SearchCase) -> int:
    return 2 if case.scale == "smoke" else case.cells


def recipe_of(case: SearchCase, genotype: Any) -> dict[str, Any]:
    """How the case is trained, as plain data."""
    recipe = (_smoke(case) if case.scale == "smoke" else _shipped(case)).model_dump()
    if case.method != "RFS":
        recipe["model"]["settings"] = {**recipe["model"]["settings"], "genotype": genotype}
    return make_recipe(recipe).model_dump()


def _shipped(case: SearchCase) -> Recipe:
    seed, resnet = f"seed={case.seed}", case.method == "RFS"
    if case.scale == "paper":
        kind = "supervised" if resnet else "cells-8" if case.cells == 8 else "cells"
        return load_recipe(f"{case.data}-{kind}", [seed])
    if resnet:  # as long as a network of cells, which is fewer steps
        one_core = ["tasks.minibatch=32", "outer.batch=1", "outer.steps=1500", "outer.warmup=100"]
        judged = ["eval.weights=last", "run.execution=loop", "run.threads=1"]
        return load_recipe("cifar-fs-supervised-thin", [seed, *one_core, *judged])
    return load_recipe("cifar-fs-cells-cpu", [seed])


def _smoke(case: SearchCase) -> Recipe:
    cells = {"kind": "cells", "settings": {"cells": _cells(case), "channels": CHANNELS["smoke"]}}
    network = {"kind": "conv4", "filters": 2} if case.method == "RFS" else cells
    judged = {"ways": WAYS, "queries": SMOKE_QUERIES, "head": "logistic", "weights": "last"}
    sections: dict[str, Any] = {
        "name": "metantk-nas",
        "data": {"name": case.data, "standardise": True},
        "tasks": {"family": "supervised", "minibatch": 8},
        "model": {**network, "norm": "running"},
        "inner": {"method": "protonet", "loss": "cross-entropy"},
        "outer": {"objective": "erm", "steps": 3, "batch": 1, "optimiser": "sgd", "lr": 0.05},
        "eval": {"episodes": 6, **judged},
        "run": {"seed": case.seed, "threads": 1},
    }
    return make_recipe(sections)


def found_cell(
    data: str, side: int, cells: int, channels: int, crops: int, method: str, settings: Any, seed: int
) -> dict[str, Any]:
    """One search."""
    source = pictures(data)
    space = cell_space(source.images.shape[-1], side, WAYS, cells=cells, channels=channels)
    draws = PictureDraws(source, seed=seed, side=side, crops=crops)
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    if (operators := given.pop("operators", None)) is not None:
        given["start"] = Choices(*((operators, *((operators[:1],) * (len(EDGES) - 1))) for _ in KINDS))
    key = {"version": VERSION, "torch": torch_version(), "data": data, "side": side, "cells": cells}
    key |= {"channels": channels, "crops": crops, "method": method, "settings": dict(settings), "seed": seed}
    keep = FOLDER.get() / "metantk-nas-measurements" / f"{digest(key)}.jsonl"  # single measurements
    fresh, begun = not keep.exists(), time.process_time()
    result = search(method, space, draws, settings=given, seed=seed, workers=1, keep=keep)
    seconds = time.process_time() - begun
    seconds = seconds if fresh else sum(each.seconds for each in read_measurements(keep).values())
    best = result.ranked[0]
    size = network_size(space.build(best.candidate, "transductive"), space.shape)
    reliability = {} if result.reliability is None else result.reliability.as_dict()
    found = {"genotype": to_table(best.candidate), "scores": best.scores, "reliability": reliability}
    return {**found, "measured": result.measured, "seconds": seconds, "parameters": size.body}


def pictures(data: str) -> ImageSource:
    """The catalogue's, the embedded ones, or the photographs that stand in at ``smoke``."""
    return photographs() if data == TINY else open_source(data)


def trained(recipe: Mapping[str, Any], heads: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """One training; no weights are chosen by validation."""
    wanted = make_recipe(recipe)
    source = photographs() if wanted.data.name == TINY else None  # no catalogue has them
    parts, plan = Parts(wanted, build_data(wanted, source)), plan_for(wanted)
    begun = time.process_time()
    state = fit_parts(parts, plan=plan)
    seconds = time.process_time() - begun
    scores = {name: rescored(parts, state, source, **settings) for name, settings in heads.items()}
    parameters = sum(value.numel() for value in state.params.values())
    return {"seconds": seconds, "steps": wanted.outer.steps, "parameters": parameters, "scores": scores}


PARTS = "metantk-nas"  # the tables and the figure share the searches and trainings that they have in common


def carry_out(cases: Sequence[SearchCase], say: Say) -> dict[SearchCase, CaseRun]:
    """Every case once; finished searches and trainings are kept."""
    say(f"{len(cases)} runs, two at a time; finished searches and trainings are kept")
    found = searched(cases)
    cells = {case: found[case]["genotype"] if case in found else "metanas" for case in cases}
    jobs: list[Any] = [{"recipe": recipe_of(*one), "heads": heads_of(one[0])} for one in cells.items()]
    runs = {}
    made = compute_parts(PARTS, VERSION, trained, jobs, seen=seen)
    for (case, cell), value in zip(cells.items(), made, strict=True):
        runs[case] = run = CaseRun(cell, found.get(case), value)
        scores = ", ".join(f"{run.accuracy(shots):.1f} % ({shots}-shot)" for shots in run.shots)
        cost = "" if run.search is None else f"searched for {run.search['seconds']:.0f} s, "
        say(f"{case}: {cost}trained for {run.training['seconds']:.0f} s: {scores}")
    return runs


def searched(cases: Sequence[SearchCase]) -> dict[SearchCase, dict[str, Any]]:
    """Of those that search for a cell, what was found."""
    for data in {case.data for case in cases}:
        pictures(data)  # missing data are told at once
    jobs = {case: job for case in cases if (job := search_of(case)) is not None}
    made = compute_parts(PARTS, VERSION, found_cell, [*jobs.values()], seen=seen)
    return dict(zip(jobs, made, strict=True))


def seen(job: Mapping[str, Any]) -> dict[str, str]:
    """What a part depends on besides its settings: the file of the photographs, where they are used."""
    data = job["recipe"]["data"]["name"] if "recipe" in job else job["data"]
    return {"photographs": file_hash(packed())} if data == TINY else {}
