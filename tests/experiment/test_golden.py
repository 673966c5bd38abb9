"""Losses of the first 20 steps of three recipes, as they were: refactors must not change them.

CPU, float64, one thread, one execution mode. After a change that is meant to alter them, make them anew with

    python tests/experiment/test_golden.py

and say in the commit why they moved.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import innerloop
from innerloop.experiment.parts import build
from innerloop.experiment.recipe.library import load_recipe
from innerloop.testing.closeness import CHAINED, ROUNDED
from innerloop.training import Plan, fit, initial_state
from oracles.patience import PATIENCE
from support.places import GOLDEN, TESTS

RECIPES = ("sine-maml", "bridge-quadratic-anil", "linear-maml")


def losses(name: str) -> list[float]:
    """The training losses of a recipe's first 20 steps."""
    torch.set_num_threads(1)
    recipe = load_recipe(name, ["run.dtype=float64"])
    parts = build(recipe)
    records: list[dict[str, Any]] = []
    fit(
        parts.objective,
        initial_state(parts.params, parts.buffers),
        parts.data.train,
        parts.optimiser,
        steps=20,
        batch=recipe.outer.batch,
        plan=Plan("vmap", threads=1, compile="off"),
        schedule=parts.schedule,
        clip=recipe.outer.clip,
        log=records.append,
        log_every=1,
    )
    return [record["loss"] for record in records]


@pytest.mark.parametrize("name", RECIPES)
def test_losses_are_what_they_were(name: str) -> None:
    golden = json.loads((GOLDEN / f"{name}.json").read_text())["losses"]
    measured = losses(name)
    assert len(measured) == len(golden) == 20
    for step, (now, then) in enumerate(zip(measured, golden, strict=True), start=1):
        assert math.isclose(now, then, rel_tol=CHAINED, abs_tol=0), f"step {step}: {now} was {then}"
    assert len(set(measured)) == 20  # something is being trained


OTHER = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}
"""Stands in for another processor: without vector instructions, and with sums in another order."""


def test_losses_are_the_same_on_another_processor() -> None:
    """To within a thousandth of what is allowed between versions: the rest is room for AVX-512."""
    homes = [Path(innerloop.__file__).parents[1], Path(__file__).parent, TESTS]
    code = "import json, test_golden as t; print(json.dumps({name: t.losses(name) for name in t.RECIPES}))"
    env = {**os.environ, **OTHER, "PYTHONPATH": os.pathsep.join(map(str, homes))}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    for name, losses in json.loads(done.stdout).items():
        golden = json.loads((GOLDEN / f"{name}.json").read_text())["losses"]
        assert losses == pytest.approx(golden, rel=ROUNDED, abs=0), name


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for each in RECIPES:
        text = json.dumps({"recipe": each, "torch": torch.__version__, "losses": losses(each)}, indent=1)
        (GOLDEN / f"{each}.json").write_text(text + "\n")
