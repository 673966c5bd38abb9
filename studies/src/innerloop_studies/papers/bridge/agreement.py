"""Bridge, Theorem 1 on trained networks: how far ANIL and MTL lie apart, beside two seeds of one method."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from innerloop.report.plots.panels import line, panel, panels_figure
from innerloop_studies.papers.bridge.agreement_jobs import PictureAnswers, Pictures, Wide, WideAnswers
from innerloop_studies.papers.bridge.agreement_rows import (
    METHODS,
    Apart,
    Labels,
    PicturesApart,
    picture_rows,
    recipe_rows,
    theorem_rows,
)
from innerloop_studies.papers.bridge.agreement_runs import INNER, TEST, trained_pictures, trained_wide
from innerloop_studies.reproduce.parts import remembered, two_at_a_time
from innerloop_studies.reproduce.rows import Reproduction, Say

NAME = "bridge-agreement"


class Size(NamedTuple):
    """What is trained."""

    depths: list[int]
    widths: list[int]
    steps: int
    seeds: int
    recipe: tuple[list[int], int, int]
    pictures: tuple[int, int, int, str]


SIZES = {
    "smoke": Size([2, 4], [16, 64], 30, 2, ([2, 4], 32, 10), (2, 4, 8, "glyphs")),
    "cpu": Size([2, 4, 8, 20], [64, 256], 200, 2, ([2, 4, 8, 20], 128, 300), (300, 100, 32, "cifar-fs")),
    "paper": Size(
        [2, 4, 8, 12, 16, 20],
        [64, 256, 512],
        1000,
        5,
        ([2, 4, 8, 12, 20], 512, 2000),
        (20_000, 600, 64, "cifar-fs"),
    ),
}


def wide_part(job: Wide) -> WideAnswers:
    """One of the quadratic tasks' networks, or what is remembered of it."""
    return WideAnswers(**remembered(NAME, trained_wide, job._asdict()))


def picture_part(job: Pictures) -> PictureAnswers:
    """One Conv4, or what is remembered of it."""
    return PictureAnswers(**remembered(NAME, trained_pictures, job._asdict()))


def run(scale: str, say: Say) -> Reproduction:
    """Trains everything, two at a time, and compares predictions on the same held-out tasks."""
    size = SIZES[scale]
    depths, width, steps = size.recipe
    cells = [(depth, wide, size.steps, "theorem") for wide in size.widths for depth in size.depths]
    cells += [(depth, width, steps, "recipe") for depth in depths]
    jobs = [
        Wide(method, depth, wide, seed, how_long, regime)
        for depth, wide, how_long, regime in cells
        for seed in range(size.seeds)
        for method in METHODS
    ]
    trained = {}
    for job, value in two_at_a_time(wide_part, jobs):
        trained[job] = value
        say(f"{job.method}, L = {job.depth}, width {job.width}, seed {job.seed}, {job.regime}")
    apart = {cell: _apart(cell, trained, size.seeds) for cell in cells}
    pictures = _pictures(size, say)
    theorem = {
        wide: [apart[depth, wide, size.steps, "theorem"] for depth in size.depths] for wide in size.widths
    }
    recipes = [apart[depth, width, steps, "recipe"] for depth in depths]
    rows = theorem_rows(size.depths, theorem, scale) + recipe_rows(depths, recipes, scale)
    rows += picture_rows(pictures, scale)
    data = {
        "theorem": {str(wide): [one._asdict() for one in each] for wide, each in theorem.items()},
        "recipe": [one._asdict() for one in recipes],
        "pictures": pictures.as_dict(),
        "size": size._asdict(),
    }
    figure = _figure(size, theorem, recipes)
    return Reproduction(rows, {NAME: figure}, data, _protocol(size))


def _apart(cell: tuple[int, int, int, str], trained: dict[Wide, WideAnswers], seeds: int) -> Apart:
    depth, width, steps, regime = cell
    made = {
        (method, seed): trained[Wide(method, depth, width, seed, steps, regime)]
        for method in METHODS
        for seed in range(seeds)
    }
    outputs = {key: _tensor(value.outputs) for key, value in made.items()}
    size = sum(float(one.norm(dim=1).mean()) for one in outputs.values()) / len(outputs)

    def distance(pairs: Sequence[tuple[Any, Any]]) -> float:
        """The mean distance of predictions over pairs of networks, relative to their size."""
        norms = [float((outputs[a] - outputs[b]).norm(dim=1).mean()) for a, b in pairs]
        return sum(norms) / len(norms) / size

    between = list(itertools.combinations(range(seeds), 2))
    left = [value.left for value in made.values() if value.left is not None]
    same_start = distance([(("anil", seed), ("mtl", seed)) for seed in range(seeds)])
    anil, mtl = (distance([((method, a), (method, b)) for a, b in between]) for method in METHODS)
    return Apart(same_start, anil, mtl, max(left, default=None))


def _tensor(values: list[list[float | None]]) -> torch.Tensor:
    """What JSON keeps as none is not a number: training or adaptation diverged."""
    return torch.tensor([[math.nan if v is None else v for v in each] for each in values]).double()


def _pictures(size: Size, say: Say) -> PicturesApart:
    """Accuracies, and how often two networks give a picture the same label."""
    jobs = [Pictures(method, seed, *size.pictures) for seed in range(size.seeds) for method in METHODS]
    by_job = {}
    for job, value in two_at_a_time(picture_part, jobs):
        by_job[job.method, job.seed] = value
        say(f"Conv4, {job.method}, seed {job.seed}: {100 * value.accuracy:.1f} %")
    shares = {key: torch.tensor(value.thousandths).double() / 1000 for key, value in by_job.items()}

    def compare(pairs: Sequence[tuple[Any, Any]]) -> Labels:
        """How often pairs of networks agree, and how far their probabilities are apart."""
        same = [float((shares[a].argmax(1) == shares[b].argmax(1)).double().mean()) for a, b in pairs]
        norms = [float((shares[a] - shares[b]).norm(dim=1).mean()) for a, b in pairs]
        return Labels(sum(same) / len(same), sum(norms) / len(norms))

    between = list(itertools.combinations(range(size.seeds), 2))
    return PicturesApart(
        compare([(("anil", s), ("mtl", s)) for s in range(size.seeds)]),
        {m: [by_job[m, s].accuracy for s in range(size.seeds)] for m in METHODS},
        {m: compare([((m, a), (m, b)) for a, b in between]) for m in METHODS},
    )


def _protocol(size: Size) -> dict[str, Any]:
    _, width, steps = size.recipe
    made, tests, filters, name = size.pictures
    return {
        "theorem": f"antisymmetric MLPs (f₀ = 0), NTK parametrisation, {size.steps} full-batch steps of "
        f"1/σ_max of each network's own kernel, λτ = {INNER.time}, no split, shared heads, head reset at "
        f"test, ŝ = {TEST.time}",
        "tasks": "20 training tasks × 10 and 20 test tasks (5 + 10) of Bridge §5.1, inputs not rescaled, "
        "labels standardised; the same for all networks",
        "recipes": f"bridge-quadratic-anil and -multitask, width {width}, {steps} steps of Adam",
        "pictures": f"{name}, Conv4-{filters}, {made} meta-steps of 4 tasks, {tests} test tasks, logistic "
        "head on normalised features for both",
        "seeds": f"0 to {size.seeds - 1}; ANIL and MTL of one seed start from the same weights",
    }


def _figure(size: Size, theorem: dict[int, list[Apart]], recipes: list[Apart]) -> Any:
    def lines(depths: list[int], cells: list[Apart], what: str) -> list[Any]:
        """Three lines: both methods' seeds, and the gap between the methods."""
        return [
            line(f"ANIL − MTL{what}", depths, [one.gap for one in cells]),
            line(f"two seeds of ANIL{what}", depths, [one.anil for one in cells]),
            line(f"two seeds of MTL{what}", depths, [one.mtl for one in cells]),
        ]

    all_lines = [one for width, cells in theorem.items() for one in lines(size.depths, cells, f", {width}")]
    name = "distance of predictions / their size"
    return panels_figure(
        [
            panel("depth L", f"{name}, theorem", all_lines, log_x=True, log_y=True),
            panel("depth L", f"{name}, recipes", lines(size.recipe[0], recipes, ""), log_x=True, log_y=True),
        ]
    )
