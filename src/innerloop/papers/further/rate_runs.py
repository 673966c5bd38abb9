"""The training runs behind ``rate-regret``: ANIL on pictures at one rate, judged on test tasks.

They stand apart from the rows that are made of them, so that finished runs outlive a change of words there
(:func:`innerloop.reproduce.parts.remembered`).
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.core.errors import UserError
from innerloop.recipes.settings import make_recipe
from innerloop.reproduce.short_runs import fitted, judged

QUERIES = 5


class Case(NamedTuple):
    """One problem."""

    data: str
    ways: int
    norm: str
    steps: int

    @property
    def normalised(self) -> bool:
        """Whether the network has normalisation layers."""
        return self.norm != "none"

    def __str__(self) -> str:
        layer = "batch norm" if self.normalised else "no normalisation"
        return (
            f"{self.data}, {self.ways}-way 1-shot, {layer}, {self.steps} step{'s' if self.steps > 1 else ''}"
        )


class Size(NamedTuple):
    """How much is trained and judged."""

    steps: int
    batch: int
    tests: int


def trained(case: Case, rate: Any, seed: int, size: Size) -> dict[str, Any]:
    """Accuracy on test tasks after training at a rate, or at ``auto``.

    Args:
        case: the problem.
        rate: a number, or ``auto``.
        seed: of the run.
        size: steps, tasks in a step and test tasks.
    """
    recipe = make_recipe(
        {
            "name": "rate-regret",
            "data": {"name": source(case.data)},
            "tasks": {"family": "few-shot", "ways": case.ways, "shots": 1, "queries": QUERIES},
            "model": {"kind": "conv4", "filters": 32, "pooling": "stride", "norm": case.norm},
            "inner": {"method": "anil", "lr": rate, "steps": case.steps, "loss": "cross-entropy"},
            "outer": {"steps": size.steps, "batch": size.batch, "lr": 3e-3, "clip": 10.0},
            "eval": {"episodes": size.tests},
            "run": {"seed": seed, "threads": 1},
        }
    )
    outcome = fitted(recipe)
    score = judged(outcome)
    chance = 1 / case.ways
    diverged = not math.isfinite(score.mean)  # in training, or when it adapts: worth a guess
    return {
        "accuracy": chance if diverged else score.mean,
        "ci95": score.ci95,
        "rate": outcome.recipe.inner.lr,
        "diverged": diverged,
    }


def source(name: str) -> str:
    """Where a dataset is: the catalogue knows it, but for Quick Draw, which is a file of one's own.

    Raises:
        UserError: there is no Quick Draw.
    """
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
    return _file_hash(source(name)) if name == "quickdraw" else ""


@functools.cache
def _file_hash(file: str) -> str:
    with Path(file).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
