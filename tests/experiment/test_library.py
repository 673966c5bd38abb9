"""Shipped recipes: all valid, named after their files, documented; recipes by name, path and run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from innerloop.core.errors import UserError
from innerloop.data import ImageSource
from innerloop.experiment.recipe.library import (
    header,
    load_recipe,
    named,
    recipe_text,
    shipped_names,
    shipped_recipes,
)
from innerloop.experiment.recipe.protocols import kinds_asked
from innerloop.experiment.recipe.settings import recipe_from_toml, recipe_to_toml
from innerloop.tasks.families import FAMILIES


@pytest.mark.parametrize("name", shipped_names())
def test_every_shipped_recipe_is_valid_and_says_what_it_is(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert 10 < len(recipe.description) < 100
    text, _ = recipe_text(name)
    comment = header(text).splitlines()
    assert comment[0] == f"innerloop train {name}"
    assert len(" ".join(comment[1:])) > 60
    assert max(map(len, text.splitlines())) <= 120
    assert recipe_from_toml(recipe_to_toml(recipe)) == recipe


def test_the_recipes_of_the_first_version_are_there() -> None:
    methods = ("maml", "fomaml", "anil", "boil", "meta-sgd", "lslr", "reptile", "erm", "multitask")
    wanted = {f"sine-{method}" for method in methods}
    wanted |= {f"bridge-quadratic-{m}" for m in ("maml", "anil", "multitask")}
    wanted |= {"adaptlr-sine", "bernacchia-quadratic", "mixed-linear", "linear-maml", "linear-nal"}
    assert wanted <= set(shipped_names())
    assert [recipe.name for recipe in shipped_recipes()] == shipped_names()


def glyphs_in_threes() -> ImageSource:
    """Glyphs with 60 pictures per class: three of their classes are one."""
    from innerloop.data.glyphs import glyphs

    source = glyphs()
    starts = np.append(source.starts[:-3:3], source.starts[-1])
    splits = {name: np.unique(classes // 3) for name, classes in source.splits.items()}
    return source._replace(
        starts=starts, class_names=source.class_names[::3], splits=splits, groups=None, group_names=()
    )


@pytest.mark.parametrize("name", shipped_names())
def test_task_families_take_the_settings_of_the_recipes(name: str) -> None:
    from innerloop.tasks import get_family, make_sampler

    recipe = load_recipe(name)
    tasks = recipe.tasks
    if tasks.family in ("few-shot", "supervised"):
        # the pictures themselves may not be here: the embedded ones stand in for their episodes
        from innerloop.experiment.data import build_data

        stand_in = recipe.model_copy(update={"data": recipe.data.model_copy(update={"name": "glyphs"})})
        largest = max(
            kind.shots + kind.queries for each in (True, False) for kind in kinds_asked(recipe, each)
        )
        pictures = glyphs_in_threes() if largest > 20 else None
        for split in ("train", "test"):
            task = getattr(build_data(stand_in, pictures), split).episode(0)
            assert len(task.x_support) == len(task.y_support) > 0
        return
    sampler = make_sampler(
        get_family(tasks.family), seed=0, shots=tasks.shots, queries=tasks.queries, settings=tasks.settings
    )
    assert sampler.batch(0, 2).x_support.shape[:2] == (2, tasks.shots)


def test_settings_apply_to_a_shipped_recipe() -> None:
    recipe = load_recipe("sine-maml", ["inner.steps=3", "seed=4"])
    assert (recipe.inner.steps, recipe.inner.test_steps, recipe.run.seed) == (3, 5, 4)


def test_recipes_from_files_and_runs(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[inner]\nlr = 0.5\n")
    assert load_recipe(str(file)).name == "mine"
    assert load_recipe(str(file)).inner.lr == 0.5
    (tmp_path / "recipe.toml").write_text('name = "again"\n')
    assert load_recipe(str(tmp_path)).name == "again"


def test_mistakes_are_explained(tmp_path: Path) -> None:
    def told(source: str, *items: str) -> str:
        with pytest.raises(UserError) as caught:
            load_recipe(source, items)
        return str(caught.value)

    assert told("sine-mam") == (
        "there is no recipe, dataset, folder or family of tasks called 'sine-mam' (did you mean "
        "'sine-maml'?): `innerloop ls` and `innerloop data ls` list those there are."
    )
    assert "leave out .toml ('sine-maml')" in told("sine-maml.toml")
    assert "no file nothing.toml" in told("nothing.toml")
    assert "the recipe comes first" in told("inner.lr=3", "sine-maml")
    assert "a folder without recipe.toml" in told(str(tmp_path))
    (tmp_path / "bad.toml").write_text("[inner]\nsteps = -1\nstps = 3\n")
    assert told(str(tmp_path / "bad.toml")).count("\n") == 1
    (tmp_path / "worse.toml").write_text("[inner\n")
    assert "not valid TOML" in told(str(tmp_path / "worse.toml"))


def test_the_library_does_not_import_torch() -> None:
    code = (
        "import sys\nfrom innerloop.experiment.recipe.library import *\n"
        "shipped_recipes(); load_recipe('sine-maml'); print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.split() == ["False", "False"]


# ---- one way to name a problem ----


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("sine-maml", "recipe"),
        ("mine.toml", "recipe"),
        ("last", "recipe"),
        ("glyphs", "pictures"),
        ("mini-imagenet", "pictures"),
        ("pics", "pictures"),
        ("./pics/", "pictures"),
        ("sine", "family"),
        ("mine:lines", "family"),
    ],
)
def test_every_command_understands_the_same_words(
    word: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("cat", "dog"):
        (tmp_path / "pics" / name).mkdir(parents=True)
        Image.new("L", (9, 9)).save(tmp_path / "pics" / name / "0.png")
    assert named(word).kind == kind


def test_all_built_in_families_are_known_without_importing_them() -> None:
    for name in FAMILIES:
        assert name in shipped_names() or named(name).kind == "family"  # some recipes are called as theirs


def test_a_family_is_trained_by_its_name() -> None:
    recipe = load_recipe("sine", ["outer.steps=7"])
    assert (recipe.tasks.family, recipe.inner.method, recipe.outer.steps) == ("sine", "maml", 7)
    assert load_recipe("mine:lines").tasks.family == "mine:lines"  # typed by the user: no trust is asked
    assert load_recipe("glyphs").data.name == "glyphs"
