"""Baseline++ from its recipes: a last layer by angles over all classes, judged by angles."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from innerloop.cli.main import main
from innerloop.experiment.loading import load_run
from innerloop.experiment.protocol import head_protocol
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.weights import for_test
from innerloop.testing.closeness import ROUNDED
from oracles import frozen_loop

TINY = [
    *("data.name=glyphs", "model.filters=8", "tasks.minibatch=32", "outer.steps=60", "eval.episodes=20"),
    *("eval.validation_episodes=5", "eval.every=30", "eval.queries=5", "run.dtype=float64", "run.threads=1"),
    *("run.execution=loop", "outer.lr=0.03"),
]


def test_a_run_on_glyphs_learns_and_is_judged_by_angles(tmp_path: Path) -> None:
    name = "cifar-fs-baseline-plus-plus-cpu"
    assert main(["train", name, *TINY, f"run.folder={tmp_path}"]) == 0
    (run,) = (tmp_path / name).iterdir()
    loaded = load_run(run)
    assert loaded.parts.network.head_names == ("head.weight",)  # a cosine has no bias
    assert len(loaded.state.params["head.weight"]) == loaded.parts.sizes.rows  # a row per training class
    weights = for_test(*loaded.weights()[0])
    protocol = head_protocol(loaded.parts.recipe, "running", 1)
    tasks = [loaded.parts.data.test.episode(i) for i in range(20)]
    wanted = [frozen_loop.one_accuracy(loaded.parts.network, *weights, task, protocol) for task in tasks]
    told = json.loads((run / "eval" / "glyphs-5way-5shot-cosine-1.json").read_text())
    assert told["scores"] == pytest.approx(wanted, abs=ROUNDED)
    assert told["mean"] > 0.5  # chance is a fifth


def test_the_recipe_for_one_core_differs_from_pre_training_in_its_angles_only() -> None:
    ours = load_recipe("cifar-fs-baseline-plus-plus-cpu").model_dump()
    theirs = load_recipe("cifar-fs-supervised-cpu").model_dump()
    theirs["model"] |= {"last_layer": "cosine", "cosine_scale": 10.0}
    theirs["eval"]["head"] = "cosine"
    del theirs["eval"]["C"]
    assert {**ours, "name": "", "description": ""} == {**theirs, "name": "", "description": ""}
