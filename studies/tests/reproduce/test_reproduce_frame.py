"""The frame of `reproduce` and `analyze`: rows, exit codes, remembered parts, flat settings."""

import ast
import importlib
import json
import math
import sys
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

import pytest
from pydantic import Field

from innerloop.choose import analysis
from innerloop.cli import main as command
from innerloop.cli.analyses import WORDS
from innerloop.core.errors import UserError
from innerloop.experiment.recipe.flat import FlatSettings, When, describe, read_flat
from innerloop.experiment.recipe.problems import Infinite
from innerloop.experiment.recipe.schema import Recipe
from innerloop.report.plots.style import new_figure
from innerloop_studies import reproduce
from innerloop_studies.reproduce.parts import remembered
from innerloop_studies.reproduce.rows import Reproduction, row
from innerloop_studies.reproduce.sources import _statements, files_behind, source_hash


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


def fake_reproduction(monkeypatch, holds, expected):
    def run(scale, say):
        say(f"at {scale}")
        figure, _ = new_figure()
        rows = [row("gain", 3, 2.5, holds, expected=expected, reason="because")]
        return Reproduction(rows, {"main": figure}, {"x": [1, 2]}, {"seeds": 1})

    monkeypatch.setitem(reproduce.REPRODUCTIONS, "fake", "nothing")
    monkeypatch.setattr("innerloop_studies.reproduce.carry_out.find", lambda name: run)


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


CALLS = []


def counted(seed, size=0):
    CALLS.append(seed)
    return {"value": (seed, size)}


def test_parts_are_computed_once_for_all_that_they_are_given(tmp_path):
    CALLS.clear()
    assert remembered("x", counted, {"seed": 0}, tmp_path) == {"value": [0, 0]}
    assert remembered("x", counted, {"seed": 0}, tmp_path) == {"value": [0, 0]}
    assert len(CALLS) == 1
    remembered("x", counted, {"seed": 1}, tmp_path)
    remembered("x", counted, {"seed": 0, "size": 2}, tmp_path)
    remembered("x", counted, {"seed": 0}, tmp_path, seen={"content": "other drawings"})
    assert len(CALLS) == 4


PACKAGE = {
    "__init__.py": "",
    "top.py": "import json\n\ndef compute(seed):\n    from toy.low import value\n    return value(seed)\n",
    "low.py": "from . import deep\n\nA = 'toy.named:a'\n\ndef value(seed):\n    return seed + deep.START\n",
    "deep.py": "START = 10\n",
    "named.py": "def a(): ...\n",
    "aside.py": "START = 11\n",
    "lists/split.json": "[1]\n",
}


def write_package(folder, **changed):
    for name, text in (PACKAGE | changed).items():
        file = folder / "toy" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())


def in_a_new_process(monkeypatch):
    """What a later command sees: nothing loaded, nothing looked at yet."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy"]:
        monkeypatch.delitem(sys.modules, name)
    importlib.invalidate_caches()
    source_hash.cache_clear()
    return importlib.import_module("toy.top")


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({}, True),
        ({"deep.py": "START = 20\n"}, False),
        ({"low.py": PACKAGE["low.py"] + "\n# a comment\n"}, False),
        ({"lists/split.json": "[2]\n"}, False),
        ({"named.py": "def a(): pass\n"}, False),
        ({"aside.py": "START = 12\n"}, True),
        ({name: text.replace("\n", "\r\n") for name, text in PACKAGE.items()}, True),
    ],
)
def test_changed_source_is_computed_anew_and_unchanged_source_is_kept(monkeypatch, tmp_path, changed, kept):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    write_package(tmp_path)
    compute = in_a_new_process(monkeypatch).compute
    assert remembered("x", compute, {"seed": 1}, tmp_path / "parts") == 11
    (file,) = (tmp_path / "parts" / "x").iterdir()
    file.write_text(file.read_text().replace('"value": 11', '"value": "kept"'))
    write_package(tmp_path, **changed)
    compute = in_a_new_process(monkeypatch).compute
    now = remembered("x", compute, {"seed": 1}, tmp_path / "parts")
    assert (now == "kept") is kept
    if "deep.py" in changed and not kept:
        assert now == 21
    in_a_new_process(monkeypatch)


def test_another_torch_computes_anew(monkeypatch, tmp_path):
    CALLS.clear()
    for version in ("2.12.0", "2.13.0", "2.13.0"):
        monkeypatch.setattr(
            "innerloop_studies.reproduce.parts.library_versions", lambda v=version: {"torch": v}
        )
        remembered("x", counted, {"seed": 0}, tmp_path)
    assert len(CALLS) == 2


def test_a_function_without_a_source_file_is_computed_each_time(tmp_path):
    calls = []
    space = {"__name__": "nowhere", "calls": calls}
    exec("def compute(seed): calls.append(seed)", space)
    for _ in range(2):
        remembered("x", space["compute"], {"seed": 0}, tmp_path)
    assert len(calls) == 2


@pytest.mark.slow
def test_imports_are_found_where_a_whole_parse_finds_them():
    """The quick look at import statements against parsing every file of the package."""
    for file in Path(reproduce.__file__).parents[1].rglob("*.py"):
        text = file.read_text("utf-8")
        whole = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Import | ast.ImportFrom)]
        assert sorted(map(ast.unparse, _statements(text))) == sorted(map(ast.unparse, whole)), file


def test_the_source_of_a_training_run_reaches_its_solver_of_rates_but_not_the_rows():
    names = set(files_behind("innerloop_studies.papers.further.rate_runs"))
    reached = {"innerloop.theory.rate.bracket", "innerloop.choose.rate_advice", "innerloop.training.loop"}
    assert reached | {"innerloop.tasks.episodes"} <= names
    elsewhere = {"papers.further.rate_regret", "cli.main", "report.rate_section"}
    assert not {f"innerloop.{name}" for name in elsewhere} & names


def fake_analysis(monkeypatch):
    class Doubled(NamedTuple):
        double: int
        name: str | None

        def as_dict(self):
            return {"double": self.double, "from": self.name}

    fake = analysis.Analysis(
        Settings,
        run=lambda settings, recipe, say: Doubled(2 * settings.dim, getattr(recipe, "name", None)),
        page=lambda result: "<p>page</p>",
    )
    monkeypatch.setitem(analysis.ANALYSES, "fake", "doubles")
    monkeypatch.setitem(WORDS, "fake", lambda result, settings: [f"double: {result.double}"])
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
