"""Flat settings of `analyze`: all mistakes at once, values as their keys want them; the frame of the verb."""

import json
import math
from typing import Annotated, ClassVar, NamedTuple

import pytest
from pydantic import Field

from innerloop.cli import analyses
from innerloop.cli import main as command
from innerloop.core.errors import UserError
from innerloop.experiment.recipe.flat import FlatSettings, When, describe, read_flat
from innerloop.experiment.recipe.problems import Infinite
from innerloop.experiment.recipe.schema import Recipe


class Settings(FlatSettings):
    RULES: ClassVar = (
        lambda s: "word=b needs flag=true" if s.word == "b" and not s.flag else None,
        lambda s: "rate=1 needs size=inf" if s.rate == 1 and s.size < math.inf else None,
        lambda s: "dim=7 needs word=c" if s.dim == 7 and s.word != "c" else None,
    )
    READERS: ClassVar = {
        "size": (When("rate=1", lambda s, _: s.rate == 1),),
        "flag": (When("no recipe", lambda _, recipe: recipe is None),),
    }
    OF_RECIPES: ClassVar = {"flag": "inner.split"}
    dim: int = Field(3, ge=1, description="Dimensions.")
    rate: float | None = Field(None, description="A rate.")
    word: str = Field("a", description="A word.")
    flag: bool = Field(False, description="A flag.")
    size: Annotated[float, Infinite()] = Field(1.0, gt=0, description="A size.")


def told(*items, recipe=None):
    with pytest.raises(UserError) as error:
        read_flat(Settings, items, "analyze x", recipe)
    return str(error.value).splitlines()


def test_all_problems_are_told_at_once():
    assert told("dim=0", "rates=1", "what", "word=7", "word=8", "--flag", "zebra=1", "rate=") == [
        "'what' is not a setting: write key=value without spaces, such as dim=3",
        "word is given twice (7 and 8)",
        "'--flag': settings have no dashes, write flag=value",
        "'rate=' has no value: write key=value without spaces",
        "unknown setting 'rates' (did you mean 'rate'?)",
        "unknown setting 'zebra'; `innerloop analyze x --keys` lists them all",
        "dim must be a whole number of at least 1, not 0",
    ]


def test_all_broken_rules_are_told_but_none_about_a_setting_that_is_wrong_anyway():
    assert told("word=b", "rate=1", "dimm=3") == [
        "unknown setting 'dimm' (did you mean 'dim'?)",
        "word=b needs flag=true",
        "rate=1 needs size=inf",
    ]
    assert told("word=b", "flg=true", "dim=7") == [
        "unknown setting 'flg' (did you mean 'flag'?)",
        "dim=7 needs word=c",
    ]
    assert told("word=b", "flag=maybe") == ["flag must be true or false, not 'maybe'"]


def test_settings_that_nothing_reads_are_refused_with_the_fix():
    unread = "size=2 is not read here: size is for rate=1; leave it out."
    assert told("size=2", "dim=0") == ["dim must be a whole number of at least 1, not 0", unread]
    assert told("size=2", "flag=True", recipe=Recipe()) == [
        unread,
        "flag=True is not read here: flag is for no recipe; give the recipe's own setting, inner.split=True.",
    ]
    assert read_flat(Settings, ["flag=True", "rate=1", "size=inf"], "analyze x").flag is True


def test_only_settings_that_say_so_take_infinity():
    assert told("rate=inf") == ["rate must be finite, not inf"]
    assert told("rate=1", "size=nan") == ["size must be a number above 0, or inf, not nan"]


def test_what_is_meant_may_be_a_setting_of_the_recipe():
    assert told("lr=1", recipe=Recipe()) == ["unknown setting 'lr' (did you mean 'inner.lr' or 'outer.lr'?)"]


def test_values_are_read_as_their_key_wants_them():
    settings = read_flat(Settings, ["dim=2.0", "rate=3", "word=7"], "analyze x")
    assert (settings.dim, settings.rate, settings.word) == (2, 3.0, "7")
    assert read_flat(Settings, ["rate=none"], "analyze x").rate is None
    assert [line["key"] for line in describe(Settings)] == ["dim", "rate", "word", "flag", "size"]


def fake_analysis(monkeypatch):
    class Doubled(NamedTuple):
        double: int
        name: str | None

        def as_dict(self):
            return {"double": self.double, "from": self.name}

        def __str__(self):
            return f"double: {self.double}"

    fake = analyses.Analysis(
        Settings,
        run=lambda settings, recipe, say: Doubled(2 * settings.dim, getattr(recipe, "name", None)),
        page=lambda result: "<p>page</p>",
    )
    monkeypatch.setitem(analyses.ANALYSES, "fake", "doubles")
    monkeypatch.setattr("innerloop.cli.analyze.find", lambda name: fake)


def test_analyze_takes_a_recipe_and_flat_settings(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    fake_analysis(monkeypatch)
    assert command.main(["analyze", "fake", "sine-maml", "dim=5", "inner.lr=0.3", "--json", "--save"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["double"], result["from"], result["settings"]["dim"]) == (10, "sine-maml", 5)
    assert (tmp_path / result["run"] / "result.json").is_file()
    assert command.main(["analyze", "fake", "dim=4"]) == 0
    assert "double: 8" in capsys.readouterr().out
    assert command.main(["analyze", "fake", "--keys"]) == 0
    assert "Dimensions." in capsys.readouterr().out


@pytest.mark.parametrize("words", [["inner.lr=1"], ["dimm=1"], ["no-such-recipe"]])
def test_bad_input_of_analyze_is_a_user_error(monkeypatch, tmp_path, words):
    monkeypatch.chdir(tmp_path)
    fake_analysis(monkeypatch)
    assert command.main(["analyze", "fake", *words]) == 2


def test_no_page_overwrites_what_is_not_one_of_ours(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    fake_analysis(monkeypatch)
    assert command.main(["analyze", "fake", "--page", "mine.html"]) == 0
    assert command.main(["analyze", "fake", "--page", "mine.html"]) == 2
    assert {file.name for file in tmp_path.iterdir()} == {"mine.html"}
