"""A folder's tasks are the same whichever command draws them."""

from __future__ import annotations

from pathlib import Path

import pytest

from innerloop.choose.request import read_advise
from innerloop.experiment.pictures import build_kinds
from innerloop.experiment.recipe.judging import backbone_recipe, with_folder
from innerloop.experiment.recipe.library import load_recipe
from support.picture_runs import draw_noise


@pytest.mark.parametrize(("classes", "pictures"), [(30, 24), (12, 8), (6, 11)])
def test_train_advise_and_eval_draw_the_same_tasks(
    classes: int, pictures: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(classes):
        draw_noise(tmp_path / "pets", f"{number:02}-pet", pictures, side=8)
    judged, said = with_folder("efficientnet-lite0", ["pets"])
    recipes = [
        load_recipe("pets"),
        read_advise("pets", []).recipe,
        backbone_recipe("efficientnet-lite0", judged),
        backbone_recipe("efficientnet-lite0", ["data.name=pets"]),
    ]
    shapes = {kind for recipe in recipes for kind in build_kinds(recipe, training=False)}
    assert len(shapes) == 1
    (shape,) = shapes
    assert f"{shape.ways}-way {shape.shots}-shot with {shape.queries} queries" in said[0]
    assert shape.shots > 1


def test_what_is_typed_wins_and_few_classes_suffice_for_a_backbone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "c"):
        draw_noise(tmp_path / "few", name, 12, side=8)
    judged, said = with_folder("efficientnet-lite0", ["few", "eval.shots=1"])
    (kind,) = build_kinds(backbone_recipe("efficientnet-lite0", judged), training=False)
    assert (kind.ways, kind.shots) == (3, 1)
    assert "3-way 1-shot" in said[0]
