"""The frame of `reproduce` and `analyze`: rows, exit codes, remembered parts, flat settings."""

import json
import types

import pytest
from pydantic import Field

from innerloop import analysis, reproduce
from innerloop.cli import main as command
from innerloop.core.errors import UserError
from innerloop.plots.style import new_figure
from innerloop.recipes.flat import FlatSettings, describe, read_flat
from innerloop.reproduce.parts import remembered
from innerloop.reproduce.rows import Reproduction, row


class Settings(FlatSettings):
    dim: int = Field(3, ge=1, description="Dimensions.")
    rate: float | None = Field(None, description="A rate.")
    word: str = Field("a", description="A word.")


def test_all_problems_are_told_at_once():
    with pytest.raises(UserError) as error:
        read_flat(Settings, ["dim=0", "rates=1", "what", "word=7", "word=8"], "analyze x")
    lines = str(error.value).splitlines()
    assert len(lines) == 4
    assert "did you mean 'rate'" in str(error.value)
    assert "dim must be a whole number of at least 1, not 0" in lines


def test_values_are_read_as_their_key_wants_them():
    found = read_flat(Settings, ["dim=2.0", "rate=3", "word=7"], "analyze x")
    assert (found.dim, found.rate, found.word) == (2, 3.0, "7")
    assert read_flat(Settings, ["rate=none"], "analyze x").rate is None
    assert [line["key"] for line in describe(Settings)] == ["dim", "rate", "word"]


def fake_reproduction(monkeypatch, holds, expected):
    def run(scale, say):
        say(f"at {scale}")
        figure, _ = new_figure()
        rows = [row("gain", 3, 2.5, holds, expected=expected, reason="because")]
        return Reproduction(rows, {"main": figure}, {"x": [1, 2]}, {"seeds": 1})

    monkeypatch.setitem(reproduce.REPRODUCTIONS, "fake", "nothing")
    monkeypatch.setattr("innerloop.reproduce.carry_out.find", lambda name: types.SimpleNamespace(run=run))


@pytest.mark.parametrize(
    ("holds", "expected", "code"), [(True, True, 0), (False, False, 0), (False, True, 3), (True, False, 3)]
)
def test_the_exit_code_says_whether_rows_are_as_recorded(
    monkeypatch, tmp_path, capsys, holds, expected, code
):
    monkeypatch.chdir(tmp_path)
    fake_reproduction(monkeypatch, holds, expected)
    assert command.main(["reproduce", "fake", "--json"]) == code
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["rows"][0] | {"what": "gain", "holds": holds, "ok": code == 0} == result["rows"][0]
    assert (tmp_path / result["figure"]).is_file()
    assert json.loads((tmp_path / result["run"] / "result.json").read_text())["data"] == {"x": [1, 2]}


def test_a_reproduction_for_people(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    fake_reproduction(monkeypatch, False, False)
    assert command.main(["reproduce", "fake"]) == 0
    out = capsys.readouterr().out
    assert "gain: because" in out
    assert "figure: " in out


@pytest.mark.parametrize("words", [["reproduce", "nothing"], ["reproduce", "fake", "--scale", "big"]])
def test_bad_names_and_scales_are_user_errors(monkeypatch, tmp_path, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(reproduce.REPRODUCTIONS, "fake", "nothing")
    assert command.main(words) == 2
    assert not (tmp_path / "runs").exists()


def test_parts_are_computed_once_per_key(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"value": (1, 2)}

    assert remembered("x", {"seed": 0}, compute, tmp_path) == {"value": [1, 2]}
    assert remembered("x", {"seed": 0}, compute, tmp_path) == {"value": [1, 2]}
    assert len(calls) == 1
    remembered("x", {"seed": 1}, compute, tmp_path)
    assert len(calls) == 2


def fake_analysis(monkeypatch):
    module = types.SimpleNamespace(
        Settings=Settings,
        run=lambda settings, recipe, say: {"double": 2 * settings.dim, "from": getattr(recipe, "name", None)},
        page=lambda result: "<p>page</p>",
        render=lambda result: [f"double: {result['double']}"],
    )
    monkeypatch.setitem(analysis.ANALYSES, "fake", "doubles")
    monkeypatch.setattr("innerloop.cli.analyze.find", lambda name: module)


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


def test_pages_get_names_of_their_own(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    fake_analysis(monkeypatch)
    for _ in range(2):
        assert command.main(["analyze", "fake", "--page"]) == 0
    assert command.main(["analyze", "fake", "--out", "mine.html"]) == 0
    assert command.main(["analyze", "fake", "--out", "mine.html"]) == 2
    assert {file.name for file in tmp_path.iterdir()} == {"fake.html", "fake-2.html", "mine.html"}
