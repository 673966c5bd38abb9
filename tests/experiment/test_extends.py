"""Recipes that extend others: what they say on top, what is refused, and what the shipped ones come to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from innerloop.cli.main import main
from innerloop.core.errors import UserError
from innerloop.experiment.recipe.library import load_recipe, resolved_text, shipped_names
from innerloop.experiment.recipe.problems import known_settings
from innerloop.experiment.recipe.schema import Recipe, absent
from innerloop.experiment.recipe.settings import recipe_from_toml, shipped_text
from support.places import FIXTURES


def chosen(recipe: Recipe) -> dict[str, object]:
    """The settings of a recipe that are not at their defaults."""
    keys = [key for key in known_settings() if "." in key and not absent(recipe, [key])]
    values = {key: getattr(getattr(recipe, key.split(".")[0]), key.split(".")[1]) for key in keys}
    return {key: value for key, value in values.items() if value != known_settings()[key].default}


GOLDEN = json.loads((FIXTURES / "shipped-recipes.json").read_text(encoding="utf-8"))


def test_every_shipped_recipe_comes_to_what_it_always_was() -> None:
    """Before any of them extended another, they were written out in full: these were their settings."""
    assert sorted(GOLDEN) == shipped_names()
    for name, settings in GOLDEN.items():
        assert chosen(load_recipe(name)) == settings, name
    assert sum("extends =" in shipped_text(name) for name in shipped_names()) > 70


@pytest.mark.parametrize("name", ["sine-anil", "tiered-imagenet-mtl-1shot", "sine-maml"])
def test_show_prints_a_recipe_that_stands_by_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", name]) == 0
    text = capsys.readouterr().out
    assert "extends" not in text
    assert text.startswith(f"# innerloop train {name}\n")
    assert recipe_from_toml(text) == load_recipe(name)


def test_files_extend_recipes_and_files(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "first.toml").write_text('extends = "sine-maml"\n[inner]\nlr = 0.5\n[outer]\nclip = 3.0\n')
    file = tmp_path / "deep" / "second.toml"
    file.write_text('extends = "../first.toml"\n[inner]\nsteps = 7\n[outer]\nclip = "none"\n')
    recipe = load_recipe(str(file))
    assert (recipe.name, recipe.description) == ("second", "")  # those are a recipe's own
    assert (recipe.inner.lr, recipe.inner.steps, recipe.inner.test_steps) == (0.5, 7, 5)
    assert recipe.outer.clip is None
    assert recipe_from_toml(file, ["inner.lr=0.1"]).inner.lr == 0.1
    assert recipe_from_toml(resolved_text(str(file))) == recipe


def test_what_is_inherited_from_another_method_is_left_out_and_what_is_written_is_not(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = "sine-maml"\n[inner]\nmethod = "none"\n')
    assert "lr" not in load_recipe(str(file)).model_dump()["inner"]
    file.write_text('extends = "sine-maml"\n[inner]\nmethod = "none"\nlr = 0.1\n')
    with pytest.raises(UserError, match=r"unknown setting 'inner.lr' with inner.method=none .*mine.toml\)"):
        load_recipe(str(file))


def test_wrong_extensions_are_told_with_all_else_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def told(text: str, *items: str) -> list[str]:
        Path("a.toml").write_text(text)
        assert main(["train", "a.toml", *items]) == 2
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.toml", "b.toml"]
        return [line.removeprefix("error: ") for line in capsys.readouterr().err.splitlines()]

    Path("b.toml").write_text('extends = "a.toml"\n')
    (circle,) = told('extends = "b.toml"\n')
    assert circle.startswith("recipes extend each other in a circle (")
    assert circle.endswith("leave out one of these extends.")
    assert "in a circle" in told('extends = "a.toml"\n')[0]
    first, second, third = told('extends = "sine-mam"\n[inner]\nstepz = 3\n', "outer.lr=x")
    assert first.startswith(
        "a.toml extends 'sine-mam', and there is no such recipe or file (did you mean 'sine-ma"
    )
    assert second == "unknown setting 'inner.stepz' (did you mean 'inner.steps'?) (in a.toml)"
    assert third == "outer.lr must be a number above 0, not 'x'"
    assert told("extends = 3\n") == ["extends must name a recipe or a TOML file, not 3 (in a.toml)."]
    Path("b.toml").write_text("[inner\n")
    assert "b.toml is not valid TOML" in told('extends = "b.toml"\n')[0]
