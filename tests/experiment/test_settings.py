"""The settings grammar: values, sections, free-form tables, and every problem told at once in plain words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from innerloop.core.errors import UserError
from innerloop.experiment.recipe.problems import allowed, known_settings
from innerloop.experiment.recipe.schema import ModelSettings, OuterSettings, Recipe, absent
from innerloop.experiment.recipe.settings import (
    make_recipe,
    parse_assignments,
    read_value,
    recipe_from_toml,
    recipe_to_toml,
)
from innerloop.learners.table import LEARNERS


def problems(*items: str, base: dict[str, Any] | None = None, source: str = "") -> list[str]:
    with pytest.raises(UserError) as caught:
        make_recipe(base or {}, items, source)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-7", -7),
        ("1_000", 1000),
        ("007", 7),
        ("1e-3", 1e-3),
        ("1E3", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("true", True),
        ("off", "off"),
        ("none", "none"),
        ("relu", "relu"),
        ("meta-sgd", "meta-sgd"),
        ("cuda:0", "cuda:0"),
        ("a.b:c", "a.b:c"),
        ("a#b", "a#b"),
        ("5#b", "5#b"),
        ("2024-01-01", "2024-01-01"),
        ("12:30:00", "12:30:00"),
        ('"a b"', "a b"),
        ("'a=b'", "a=b"),
        ("[64,64]", [64, 64]),
        ("[]", []),
        ("[maml, anil]", ["maml", "anil"]),
        ("[0.1,.2]", [0.1, 0.2]),
        ("{dim=3}", {"dim": 3}),
        ("1\nw=2", "1\nw=2"),
        ("__import__('os').system('true')", "__import__('os').system('true')"),
        ("64,64", "64,64"),
        ("[[1,2],[3,4]]", [[1, 2], [3, 4]]),
    ],
)
def test_values(text: str, value: Any) -> None:
    read = read_value(text)
    assert read == value
    assert type(read) is type(value)


def test_assignments_keep_everything_after_the_first_equals_sign() -> None:
    assert parse_assignments(["model.init=a=b", "seed=4", "inner.lr = 0.5"]) == {
        "model.init": "a=b",
        "run.seed": 4,
        "inner.lr": 0.5,
    }


def test_settings_reach_their_section() -> None:
    recipe = make_recipe(
        {"inner": {"lr": 0.5, "steps": 2}, "tasks": {"settings": {"dim": 2}}},
        [
            "inner.lr=0.1",
            "seed=3",
            "outer.steps=1e4",
            "model.hidden=[64,64]",
            "inner.split=False",
            "tasks.settings.range=[0,1]",
            "outer.options.weight_decay=1e-4",
            "outer.options.betas=[0.9,0.99]",
            "model={bias=false, activation='tanh'}",
        ],
    )
    assert (recipe.inner.lr, recipe.inner.steps, recipe.inner.split) == (0.1, 2, False)
    assert recipe.run.seed == 3
    assert recipe.outer.steps == 10_000
    assert isinstance(recipe.outer.steps, int)
    assert recipe.outer.options == {"weight_decay": 1e-4, "betas": [0.9, 0.99]}
    assert recipe.tasks.settings == {"dim": 2, "range": [0, 1]}
    assert (recipe.model.hidden, recipe.model.bias, recipe.model.activation) == ([64, 64], False, "tanh")


def test_the_base_is_not_changed() -> None:
    base = {"tasks": {"settings": {"dim": 2}}}
    make_recipe(base, ["tasks.settings.dim=3", "inner.lr=1"])
    assert base == {"tasks": {"settings": {"dim": 2}}}


def test_none_means_none_only_where_the_schema_has_no_such_word() -> None:
    base = {"tasks": {"n_tasks": 5}, "inner": {"test_steps": 3}}
    recipe = make_recipe(
        base, ["tasks.n_tasks=none", "inner.test_steps=None", "model.kind=conv4", "model.norm=none"]
    )
    assert recipe.tasks.n_tasks is None
    assert recipe.inner.test_steps is None
    assert recipe.model.norm == "none"
    assert make_recipe({}, ["inner.method=none"]).inner.method == "none"
    assert make_recipe({}, ["tasks.settings.scale=none"]).tasks.settings == {"scale": "none"}


def test_text_settings_take_numbers_as_typed() -> None:
    assert make_recipe({}, ["name=1e3"]).name == "1e3"
    assert make_recipe({}, ["run.device=0"]).run.device == "0"


def test_all_problems_at_once() -> None:
    told = problems(
        "inner.stepz=3",
        "steps=5",
        "inner.method=mamll",
        "inner.steps=-1",
        "outer.factor=3",
        "model.hidden=64",
        "inner.lr=nan",
        "inner.split=maybe",
        "outer.clip=abc",
        "learning_rate=1",
        "zebra=3",
        "outer.objective=multitask",
        "word",
    )
    assert told == [
        "'word' is not a setting: write key=value without spaces, such as inner.steps=3",
        "unknown setting 'inner.stepz' (did you mean 'inner.steps'?)",
        "unknown setting 'steps' (did you mean 'inner.steps' or 'outer.steps'?)",
        "unknown setting 'learning_rate' (did you mean 'inner.lr' or 'outer.lr'?)",
        "unknown setting 'zebra'; `innerloop show sine-maml --schema` lists them all",
        "inner.lr must be finite, not nan",
        "model.hidden must be a list of whole numbers such as [40, 40], not 64",
        f"inner.method must be {', '.join(list(LEARNERS)[:-1])} or none, or package.module:factory, not "
        "'mamll' (did you mean 'maml'?)",
        "inner.steps must be a whole number of at least 0, not -1",
        "inner.split must be true or false, not 'maybe'",
        "outer.factor must be a number above 0 and below 1, not 3",
        "outer.clip must be a number above 0, or none, not 'abc'",
        "outer.objective=multitask keeps one head per task: set tasks.n_tasks, for example 100.",
    ]


def test_a_rule_about_a_setting_that_is_wrong_anyway_is_not_told() -> None:
    assert len(problems("outer.objective=multitask", "tasks.n_tasks=-1")) == 1


def test_all_broken_rules_are_told_at_once() -> None:
    assert problems(
        "tasks.family=supervised", "inner.lr=auto", "eval.head=svm", "inner.stpes=3", "outer.lr=0"
    ) == [
        "unknown setting 'inner.stpes' (did you mean 'inner.steps'?)",
        "outer.lr must be a number above 0, not 0",
        "tasks.family=supervised gives minibatches without support and query sets, and "
        "outer.objective=episodic needs tasks: set outer.objective=erm, or tasks.family=few-shot.",
        "inner.lr=auto looks at training tasks, and tasks.family=supervised has none: give a number.",
    ]
    with pytest.raises(ValidationError) as caught:  # from Python as well
        Recipe(model=ModelSettings(hidden=[0]), outer=OuterSettings(objective="multitask"))
    assert "model.hidden needs widths" in str(caught.value)
    assert "set tasks.n_tasks" in str(caught.value)


def test_a_rule_about_what_a_misspelt_setting_meant_is_not_told() -> None:
    assert problems("outer.objective=multitask", "tasks.n_task=9", "inner.steps=-1") == [
        "unknown setting 'tasks.n_task' (did you mean 'tasks.n_tasks'?)",
        "inner.steps must be a whole number of at least 0, not -1",
    ]


def test_an_unknown_setting_of_a_file_hides_nothing() -> None:
    base = {"inner": {"stpes": 3, "steps": -1}, "outer": {"objective": "multitask"}}
    assert problems("tasks.shots=x", "inner.online=h3", base=base, source="mine.toml") == [
        "tasks.shots must be a whole number of at least 1, not 'x'",
        "inner.steps must be a whole number of at least 0, not -1 (in mine.toml)",
        "unknown setting 'inner.stpes' (did you mean 'inner.steps'?) (in mine.toml)",
        "unknown setting 'inner.online' with inner.method=maml: it is for inner.method=anil.",
        "outer.objective=multitask keeps one head per task: set tasks.n_tasks, for example 100.",
    ]


def test_doubts_about_what_was_typed_stand_beside_the_mistakes() -> None:
    with pytest.raises(UserError) as caught:
        make_recipe({}, ["inner.stpes=3", "inner.lr=-1", "tasks.resample=true", "eval.C=x"])
    assert str(caught.value).splitlines() == [
        "unknown setting 'inner.stpes' (did you mean 'inner.steps'?)",
        "eval.C must be a number above 0, not 'x'",
    ]
    climbs, unread = sorted(caught.value.__notes__)
    assert climbs.startswith("inner.lr=-1 is negative")
    assert unread == "tasks.resample is not read: it is for a given tasks.n_tasks."


def test_problems_inside_a_list_of_tables_say_where() -> None:
    assert problems("tasks.mixture=[{wayz=3}, {ways=1, choice='all'}, 3]") == [
        "tasks.mixture[0] has no setting 'wayz' (did you mean 'ways'?)",
        "tasks.mixture[1].ways must be a whole number of at least 2, not 1",
        "tasks.mixture[1].choice must be any, one-group or across-groups, not 'all'",
        "tasks.mixture[2] must be a table, not 3",
    ]
    assert problems("tasks.mixture=3") == ["tasks.mixture must be a list of tables, not 3"]


def test_numbers_in_lists_are_finite_too() -> None:
    assert problems("outer.milestones=[0.5, inf]") == ["outer.milestones must be finite, not inf"]


@pytest.mark.parametrize(
    "item", ["inner.steps=true", "inner.lr=true", "inner.steps=1.5", "inner.steps='3'", "run.seed=-1"]
)
def test_values_are_not_coerced_across_kinds(item: str) -> None:
    assert problems(item)[0].startswith(f"{item.partition('=')[0]} must be a")


def test_keys_of_sections_and_values_are_explained() -> None:
    assert problems("inner=5") == ["inner is a section: set one of its keys, such as inner.method"]
    assert problems("inner.lr.x=3") == ["unknown setting 'inner.lr.x' (did you mean 'inner.lr'?)"]
    assert problems("tasks.settings=3") == ["tasks.settings must be a table, not 3"]
    assert problems("tasks.settings.a=1", "tasks.settings.a.b=2") == [
        "tasks.settings.a.b cannot be set: 'a' is not a table but 1"
    ]
    assert problems("seed=1", "run.seed=2") == ["run.seed is given twice (1 and 2)"]
    assert problems("inner.lr=", "=3") == [
        "'inner.lr=' has no value: write key=value without spaces",
        "'=3' has no key: write key=value without spaces",
    ]


def test_flags_of_other_commands_are_explained() -> None:
    assert problems("--steps", "5", "--inner.lr=0.1") == [
        "'--steps 5': there is no such option, and settings have no dashes (did you mean "
        "'inner.steps' or 'outer.steps'?)",
        "'--inner.lr=0.1': settings have no dashes, write inner.lr=0.1",
    ]


def test_no_jargon_reaches_the_user() -> None:
    told = "\n".join(
        problems(
            *(f"{key}={{x=1}}" for key, f in known_settings().items() if "dict" not in str(f.annotation))
        )
    )
    for word in ("pydantic", "http", "Input should", "valid dictionary", "validation error", "_type"):
        assert word not in told


def test_problems_of_a_file_name_the_file() -> None:
    base = {"inner": {"momentum": 2, "stps": 2}, "outer": 5}
    told = problems("inner.steps=x", base=base, source="mine.toml")
    assert told == [
        "inner.steps must be a whole number of at least 0, not 'x'",
        "inner.momentum must be a number of at least 0 and below 1, not 2 (in mine.toml)",
        "unknown setting 'inner.stps' (did you mean 'inner.steps'?) (in mine.toml)",
        "outer must be a section of settings, not 5 (in mine.toml)",
    ]


def test_recipes_round_trip_through_toml(tmp_path: Path) -> None:
    recipe = make_recipe(
        {"name": "späß", "description": 'a "quoted" line'},
        ["inner.lr=0.1", "tasks.settings.a={b=[1,2.5]}", "outer.clip=3", "outer.lr=1e-12", "run.chunk=none"],
    )
    text = recipe_to_toml(recipe, header="one\n\ntwo")
    assert text.startswith("# one\n#\n# two\n")
    assert recipe_from_toml(text) == recipe
    (tmp_path / "r.toml").write_text(text, encoding="utf-8")
    assert recipe_from_toml(tmp_path / "r.toml") == recipe
    assert recipe_from_toml(str(tmp_path / "r.toml"), ["seed=9"]).run.seed == 9


def test_toml_of_a_recipe_is_complete() -> None:
    """Every setting that it has is written out, so that later defaults cannot change an old run."""
    text = recipe_to_toml(Recipe())
    for key, field in known_settings().items():
        if absent(Recipe(), [key]):
            assert f"\n[{key}]" not in text
        elif field.default is not None:
            assert f"{key.rpartition('.')[2]} = " in text or f"[{key}]" in text, key


def test_bad_toml_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"line 2, column 6\); text needs quotes there"):
        recipe_from_toml("[inner]\nlr = foo")
    with pytest.raises(UserError, match=r"cannot read .*No such file"):
        recipe_from_toml(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="it is not text"):
        recipe_from_toml(tmp_path / "binary.toml")


def test_every_setting_can_be_described() -> None:
    for key, field in known_settings().items():
        assert allowed(field), key
        assert field.description, key


def test_settings_do_not_import_torch() -> None:
    code = (
        "import sys, innerloop.experiment.recipe.settings; print(*(m in sys.modules for m in sys.argv[1:]))"
    )
    command = [sys.executable, "-P", "-c", code, "torch", "numpy"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["False", "False"]


def test_a_name_that_the_locale_cannot_read_is_not_called_wrong() -> None:
    (line,) = problems(base={"data": {"name": "caf\udcc3\udca9/"}})
    assert line.startswith("data.name must be text in UTF-8: the name café/ cannot be read in this locale")
    (line,) = problems(base={"data": {"name": "caf\udce9/"}})
    assert "caf\\udce9/ is not UTF-8: rename it" in line
