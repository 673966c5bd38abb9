"""The training runs behind ``rate-regret`` and ``rate-unseen``: ANIL on pictures at one rate.

They stand apart from the rows that are made of them, so that finished runs outlive a change of words there
(:func:`innerloop_studies.reproduce.parts.remembered`).
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.choose.rates import advice_for, provisional
from innerloop.core.errors import UserError
from innerloop.experiment.parts import build
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.experiment.weights import for_test
from innerloop.theory.estimates.features import head_stacks
from innerloop.theory.rate.bracket import step_divisor
from innerloop.theory.rate.forms import step_rates
from innerloop_studies.reproduce.short_runs import fitted, judged

QUERIES = 5
PHOTOGRAPHS, SIDE = "tiny-imagenet", 32
"""Photographs are brought to this size: a quarter of the pixels, and of the time."""


class Case(NamedTuple):
    """One problem."""

    data: str
    ways: int
    norm: str
    steps: int
    shots: int = 1

    @property
    def normalised(self) -> bool:
        """Whether the network has normalisation layers."""
        return self.norm != "none"

    def __str__(self) -> str:
        layer = "batch norm" if self.normalised else "no normalisation"
        many = "s" if self.steps > 1 else ""
        return f"{self.data}, {self.ways}-way {self.shots}-shot, {layer}, {self.steps} step{many}"


class Size(NamedTuple):
    """How much is trained and judged."""

    steps: int
    batch: int
    tests: int


class Reached(NamedTuple):
    """What training at a rate has reached."""

    accuracy: float
    ci95: float
    rate: float
    diverged: bool


def trained(case: Case, rate: Any, seed: int, size: Size) -> Reached:
    """Accuracy on test tasks after training at a rate, or at ``auto``."""
    outcome = fitted(recipe_of(case, rate, seed, size))
    score = judged(outcome)
    chance = 1 / case.ways
    diverged = not math.isfinite(score.mean)
    accuracy = chance if diverged else score.mean
    return Reached(accuracy, score.ci95, float(outcome.recipe.inner.lr), diverged)


def recipe_of(case: Case, rate: Any, seed: int, size: Size) -> Recipe:
    """ANIL with a strided Conv4-32 on a problem."""
    data = {"name": source(case.data), **({"size": SIDE} if case.data == PHOTOGRAPHS else {})}
    shape = {"ways": case.ways, "shots": case.shots, "queries": QUERIES}
    return make_recipe(
        {
            "name": "rate-regret",
            "data": data,
            "tasks": {"family": "few-shot", **shape},
            "model": {"kind": "conv4", "filters": 32, "pooling": "stride", "norm": case.norm},
            "inner": {"method": "anil", "lr": rate, "steps": case.steps, "loss": "cross-entropy"},
            "outer": {"steps": size.steps, "batch": size.batch, "lr": 3e-3, "clip": 10.0},
            "eval": {"episodes": size.tests},
            "run": {"seed": seed, "threads": 1},
        }
    )


def estimated(case: Case, seed: int) -> dict[str, float]:
    """The two forms behind ``auto``'s point at the first weights, for one step and (``…, all``) for all."""
    parts = build(provisional(recipe_of(case, "auto", seed, Size(1, 1, 1))))
    advice = advice_for(parts)
    forms = {name: value * step_divisor(case.steps) for name, value in advice.forms.items()}
    batch = parts.data.train.episodes(range(advice.tasks))
    stacks = head_stacks(parts.network, *for_test(parts.params, parts.buffers), batch)
    every = step_rates(*stacks, classes=case.ways, steps=case.steps)
    return {**forms, "gradient, all": every.gradient, "trace, all": every.trace}


def source(name: str) -> str:
    """Where a dataset is: the catalogue knows it, but for Quick Draw and photographs, which are one's own."""
    if name == PHOTOGRAPHS:
        folder = os.environ.get("INNERLOOP_TINY_IMAGENET")
        if folder is None or not Path(folder).is_dir():
            raise UserError(
                "this needs photographs: set INNERLOOP_TINY_IMAGENET to a folder of pictures of "
                "Tiny-ImageNet, one folder per class."
            )
        return folder
    if name != "quickdraw":
        return name
    test_data = os.environ.get("INNERLOOP_TEST_DATA")
    given = os.environ.get("INNERLOOP_QUICKDRAW") or (f"{test_data}/quickdraw_28.npz" if test_data else None)
    if given is None or not Path(given).is_file():
        raise UserError(
            "rate-regret needs Quick Draw drawings: set INNERLOOP_QUICKDRAW to an .npz of images "
            "(classes, drawings, 28, 28) and names."
        )
    return given


def content(name: str) -> str:
    """What tells two datasets of this name apart: nothing for the catalogue's, whose pictures are checked."""
    if name == PHOTOGRAPHS:
        return _folder_hash(source(name))
    return _file_hash(source(name)) if name == "quickdraw" else ""


@functools.cache
def _file_hash(file: str) -> str:
    with Path(file).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@functools.cache
def _folder_hash(folder: str) -> str:
    """Of names and sizes: what reads as other pictures is not taken for the same."""
    root = Path(folder)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    listing = "\n".join(f"{path.relative_to(root).as_posix()} {path.stat().st_size}" for path in files)
    return hashlib.sha256(listing.encode()).hexdigest()
