"""Recipes of found cells: the published settings, the commands in their headers, and that they train."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from innerloop.experiment.parts import build
from innerloop.experiment.recipe.library import load_recipe
from innerloop.training import make_schedule

# pictures, batch, epochs, rate, drop-path, C for five shots, head and C for one (appendix E, § 6.1)
PUBLISHED = {
    "mini-imagenet-cells": (38_400, 64, 100, 0.02, 0.2, 0.6, "svc", 0.2),
    "mini-imagenet-cells-8": (38_400, 40, 100, 0.02, 0.2, 0.4, "svc", 0.35),
    "tiered-imagenet-cells": (448_695, 64, 60, 0.01, 0.1, 0.8, "svc", 0.75),
    "tiered-imagenet-cells-8": (448_695, 56, 60, 0.01, 0.1, 0.5, "logistic", 0.95),
}
FALLS = {"mini": (60, 80), "tiered": (30, 40, 50)}
names = pytest.mark.parametrize("name", PUBLISHED)


def commands(name: str) -> list[list[str]]:
    """What a recipe's header adds to ``innerloop eval last``."""
    text = (files("innerloop.experiment.recipe") / "shipped" / f"{name}.toml").read_text("utf-8")
    return [line.split() for line in re.findall(r"^#   innerloop eval last (.*)$", text, re.MULTILINE)]


@names
def test_training_is_as_published(name: str) -> None:
    pictures, batch, epochs, rate, drop, *_ = PUBLISHED[name]
    recipe = load_recipe(name)
    epoch = -(-pictures // batch)
    assert (recipe.tasks.minibatch, recipe.outer.steps, recipe.outer.lr) == (batch, epoch * epochs, rate)
    settings = recipe.model.settings
    assert (settings["drop_path"], settings["drop_ramp"], settings["drop_epoch"]) == (
        drop,
        epoch * epochs,
        epoch,
    )
    assert settings["cells"] == (8 if name.endswith("8") else 5)
    assert settings["channels"] == 48
    outer = recipe.outer
    schedule = make_schedule(outer.schedule, outer.steps, outer.milestones, outer.factor)
    for fallen, when in enumerate(FALLS[name.split("-")[0]]):
        assert schedule(when * epoch - 1) == pytest.approx(0.1**fallen)
        assert schedule(when * epoch) == pytest.approx(0.1 ** (fallen + 1))


@names
def test_heads_are_those_of_appendix_e_and_of_the_released_code(name: str) -> None:
    *_, five, head, one = PUBLISHED[name]
    first, released, last = commands(name)
    assert (load_recipe(name).eval.head, load_recipe(name).eval.C) == ("logistic", five)
    single = load_recipe(name, first).eval
    assert (single.shots, single.head, single.C, single.copies) == (1, head, one, 5)
    for items, shots in ((released, 5), (last, 1)):
        settings = load_recipe(name, items).eval
        assert (settings.shots, settings.head, settings.C, settings.copies, settings.episodes) == (
            shots,
            "logistic",
            1,
            5,
            1000,
        )


@pytest.mark.parametrize("name", [*PUBLISHED, "cifar-fs-cells", "cifar-fs-cells-cpu"])
def test_a_recipe_of_cells_has_a_network(name: str) -> None:
    changes = ["data.name=glyphs", "data.augment=none", "model.settings.channels=2", "tasks.minibatch=4"]
    parts = build(load_recipe(name, [*changes, "outer.steps=2", "eval.queries=5"]))
    assert "head.weight" in parts.first.params
    for items in commands(name):
        load_recipe(name, items)
